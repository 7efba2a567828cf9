"""Model servers on shares: through ``gpushare serve``, and through what arena itself deploys.

The server is a stand-in that ends unless its fraction fits the share; the guide of serving is run
by the cases of guides.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from environments import table
from environments.case import Case
from environments.environment import Environment
from environments.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.e2e

MODEL = "half_plus_two"
AT_ONCE = ("--grace-period=0", "--force", "--ignore-not-found")
"""Kubelet of 1.20 removes a pod's object up to ten seconds after its containers have ended."""
NOTE = "as it is: {{ '$HOME' }}\n"


def gpushare(environment: Environment, *args: str) -> str:
    """What the command prints; it must end well."""
    done = subprocess.run(
        ["gpushare", *args],
        env=environment.kubectl.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(case: Case, name: str) -> bool:
    """Its containers have ended, by kubelet's status, or it is deleted already."""
    pods = [pod for pod in case.pods() if pod["metadata"]["name"] == name]
    states = [state for pod in pods for state in pod["status"]["containerStatuses"]]
    return all("terminated" in state["state"] for state in states)


def addresses(case: Case, service: str) -> str:
    """Where the API server's proxy leads for a Service; empty until a pod is ready."""
    output = "jsonpath={.subsets[*].addresses[*].ip}"
    return case.kubectl.attempt("get", "endpoints", service, "-n", case.name, "-o", output).stdout


def predict(case: Case, service: str, *numbers: float) -> Any:
    """The model's answer, through the API server's proxy to the Service."""
    until(f"{service} leads to a pod", lambda: addresses(case, service))
    path = f"/api/v1/namespaces/{case.name}/services/{service}:http/proxy/v1/models/{MODEL}"
    body = json.dumps({"instances": numbers})
    command = ("create", "--raw", f"{path}:predict", "-f", "-")

    def answer() -> str:
        """The API server learns of the endpoints a moment after this process."""
        done = case.kubectl.attempt(*command, stdin=body)
        assert not done.returncode or "ServiceUnavailable" in done.stderr, done.stderr
        return done.stdout

    return json.loads(until(f"{service} answers", answer))["predictions"]


def fraction(case: Case, service: str) -> float:
    """The memory fraction that the server was given, from its metrics."""
    path = f"/api/v1/namespaces/{case.name}/services/{service}:http/proxy"
    text = case.kubectl("get", "--raw", f"{path}/monitoring/prometheus/metrics")
    return float(text.split()[1])


def test_a_model_is_served_on_a_share_and_the_share_comes_back(
    environment: Environment, case: Case, small: str, tmp_path: Path
) -> None:
    """Serve, predict, list, get and delete; the fraction leaves room for the CUDA context.

    A file of this machine and an empty folder are in its container.
    """
    (tmp_path / "note").write_text(NOTE)
    flags = ("--model-name", MODEL, "--model-path", f"/models/{MODEL}", "--gpumemory", "3")
    where = ("--image", environment.modelserver, "--selector", f"kubernetes.io/hostname={small}")
    more = ("--config-file", f"{tmp_path}/note:/etc/note", "--empty-dir", "cache:/cache")
    options = ("--name", "half", *flags, *where, *more, "-n", case.name)
    gpushare(environment, "serve", "tensorflow", *options)
    case.wait_available("half-tensorflow-serving")
    look = ("--", "sh", "-c", "touch /cache/one && cat /etc/note")
    server = "deployment/half-tensorflow-serving"
    assert case.kubectl("exec", server, "-n", case.name, *look) == NOTE
    assert predict(case, "half-tensorflow-serving", 1.0, 2.0, 5.0) == [2.5, 3.0, 4.5]
    units = environment.nodes[small][0].units
    assert fraction(case, "half-tensorflow-serving") == pytest.approx(
        (3 * 1024 - 600) / ((units + 1) * 1024), abs=1e-6
    )
    until("its share is shown", lambda: table.used(environment, small) == 3)

    (row,) = gpushare(environment, "serve", "list", "-n", case.name, "--no-headers").splitlines()
    assert row.split()[:5] == ["half", "tf-serving", "N/A", "1", "1"]
    found = gpushare(environment, "serve", "get", "half", "-n", case.name, "-o", "json")
    (pod,) = json.loads(found)["items"][0]["instances"]
    assert pod["gpus"] == {str(case.gpu(pod["name"])): 3}

    assert "deleted" in gpushare(environment, "serve", "delete", "half", "-n", case.name)
    until("the server has ended", lambda: ended(case, pod["name"]))
    case.kubectl("delete", "pod", pod["name"], "-n", case.name, *AT_ONCE)
    until("the share is free again", lambda: table.used(environment, small) == 0)
    assert gpushare(environment, "serve", "list", "-n", case.name) == ""


def test_what_arena_deploys_runs_unchanged(
    environment: Environment, case: Case, small: str
) -> None:
    """Arena's Deployment names no scheduler: the node gives it a GPU, and all of us see it."""
    case.kubectl.apply(*arena(environment, case, small))
    case.wait_available("mnist-tensorflow-serving")
    assert predict(case, "mnist-tensorflow-serving", 4.0) == [4.0]
    units = environment.nodes[small][0].units
    assert fraction(case, "mnist-tensorflow-serving") == float(f"{3 / units:.2f}")
    shown = f"{3 / units:.2f}"
    until("its part of a GPU is shown", lambda: parts(environment, case) == [shown])
    (listed,) = gpushare(environment, "serve", "list", "-n", case.name, "--no-headers").splitlines()
    assert listed.split()[:2] == ["mnist", "tf-serving"]


def parts(environment: Environment, case: Case) -> list[str]:
    """What ``top node`` shows of the case's pods, as parts of GPUs."""
    lines = gpushare(environment, "top", "node", "-d").splitlines()
    return [line.split()[2] for line in lines if case.name in line]


def arena(environment: Environment, case: Case, node: str) -> list[dict[str, Any]]:
    """Objects with the names, labels, variables, limits and command line that arena gives them."""
    labels = {
        "heritage": "Helm",
        "release": "mnist",
        "chart": "tensorflow-serving-0.4.0",
        "app": "tensorflow-serving",
        "servingName": "mnist",
        "serviceName": "mnist",
        "servingType": "tf-serving",
        "servingVersion": "202611210900",
    }
    meta = {"name": "mnist-tensorflow-serving", "namespace": case.name, "labels": labels}
    quotient = (
        """$(awk 'BEGIN{printf "%.2f",'$ALIYUN_COM_GPU_MEM_CONTAINER'/'"""
        """$ALIYUN_COM_GPU_MEM_DEV'}')"""
    )
    server = (
        f"/usr/bin/tensorflow_model_server --port=8500 --rest_api_port=8501 --model_name={MODEL}"
        f" --model_base_path=/models/{MODEL} --per_process_gpu_memory_fraction={quotient}\n"
    )
    container = {
        "name": "serving",
        "image": environment.modelserver,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c"],
        "args": [server],
        "env": [
            {"name": "ARENA_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "ARENA_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [
            {"containerPort": 8500, "name": "serving"},
            {"containerPort": 8501, "name": "http-serving"},
        ],
        "readinessProbe": {"tcpSocket": {"port": 8501}, "periodSeconds": 2},
        "resources": {"limits": {"aliyun.com/gpu-mem": 3}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
    }
    chosen = {"release": "mnist", "app": "tensorflow-serving"}
    ports = [{"name": "http", "port": 8501, "targetPort": 8501}]
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": chosen},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": chosen, "ports": ports},
        },
    ]
