"""A real Prometheus on this machine that asks the stack of a cluster, with the chart's own rules.

It reaches plain ports of pods through the API server's proxy, as whoever the kubeconfig names. A
kube-scheduler wants to know who asks, which the proxy does not tell it: its port is forwarded, and
Prometheus shows the kubeconfig's certificate itself. Jobs are named as the chart's monitors name
them; that monitors select these pods and ports is a test of the chart.
"""

import base64
import json
import re
import shutil
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cluster import prometheus
from environments.kubectl import Kubectl, Object
from environments.processes import Process, free_port
from environments.waiting import until

START_SECONDS = 30
ASK_SECONDS = 10
EVERY = "2s"
SCHEDULER_PORT = 10259
RULES = Path(__file__).parents[2] / "helm" / "gpushare" / "alerts" / "gpushare.yaml"


class Sample(msgspec.Struct, frozen=True):
    """One series of an answer."""

    labels: dict[str, str]
    value: float


def impatient(rules: str) -> str:
    """The rules with every `for:` taken out: a test cannot wait as long as an operator should."""
    return re.sub(r"^ +for: \w+\n", "", rules, flags=re.MULTILINE)


class Prometheus:
    """One Prometheus; start it, ask it, stop it.

    Args:
        kubectl: of the cluster.
        namespace: of the stack.
    """

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._folder = Path(tempfile.mkdtemp(prefix="gpushare-prometheus-"))
        self._processes: list[Process] = []
        self._url = f"http://127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Bring it up; returns when it has loaded the rules and answers.

        Raises:
            ClusterError: the program is not here and cannot be fetched.
        """
        program = prometheus.ensure().prometheus
        (self._folder / "rules.yaml").write_text(impatient(RULES.read_text()))
        (self._folder / "prometheus.yaml").write_text(json.dumps(self._configuration()))
        argv: list[str | Path] = [
            program,
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        server = self._run("prometheus", argv)
        until("Prometheus is ready", lambda: self._ready(server), seconds=START_SECONDS)

    def stop(self) -> None:
        """End all that was started and remove all files."""
        for process in reversed(self._processes):
            process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def query(self, expression: str) -> list[Sample]:
        """What a PromQL expression is now."""
        answer = self._get("query", query=expression)
        return [Sample(each["metric"], float(each["value"][1])) for each in answer["result"]]

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None while there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} is not one series: {found}"
        return found[0].value if found else None

    def firing(self, name: str, **labels: str) -> Object | None:
        """The alert of this name that fires with these labels, annotations and all."""
        for alert in self._get("alerts")["alerts"]:
            wanted = {"alertname": name, **labels}
            if alert["state"] == "firing" and wanted.items() <= alert["labels"].items():
                found: Object = alert
                return found
        return None

    def rules(self) -> list[Object]:
        """All rules as Prometheus has them, with their health."""
        groups = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def troubles(self) -> list[str]:
        """Targets that do not answer, and why; that there are none yet is one."""
        found = self._get("targets")["activeTargets"]
        if not found:
            return ["no target was taken in yet"]
        return [
            f"{target['labels']}: {target['health']} {target['lastError']}"
            for target in found
            if target["health"] != "up"
        ]

    def _configuration(self) -> Object:
        kubeconfig = yaml.safe_load(self._kubectl.kubeconfig.read_text())
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        shown = {
            "cert_file": self._file("client.crt", user["client-certificate-data"]),
            "key_file": self._file("client.key", user["client-key-data"]),
        }
        trusted = {"ca_file": self._file("ca.crt", cluster["certificate-authority-data"])}
        server = urllib.parse.urlsplit(cluster["server"]).netloc
        through = {"scheme": "https", "tls_config": {**shown, **trusted}}
        direct = {"scheme": "https", "tls_config": {**shown, "insecure_skip_verify": True}}
        return {
            "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
            "rule_files": [str(self._folder / "rules.yaml")],
            "scrape_configs": [
                _job("extender", through, self._proxied("scheduler", "extender", server)),
                _job("device-plugin", through, self._proxied("device-plugin", None, server)),
                _job("scheduler", direct, self._forwarded()),
            ],
        }

    def _proxied(self, component: str, container: str | None, server: str) -> Iterator[Object]:
        """Targets for the port `metrics` of a component's pods, behind the API server."""
        for pod in self._pods(component):
            port = _port(pod, container)
            name = pod["metadata"]["name"]
            pods = f"/api/v1/namespaces/{self._namespace}/pods"
            labels = {"__metrics_path__": f"{pods}/{name}:{port}/proxy/metrics", **_where(pod)}
            if component == "device-plugin":
                labels["node"] = pod["spec"]["nodeName"]
            yield {"targets": [server], "labels": labels}

    def _forwarded(self) -> Iterator[Object]:
        """Targets for the schedulers' own port, forwarded to this machine."""
        for pod in self._pods("scheduler"):
            name, port = pod["metadata"]["name"], free_port()
            words = ("port-forward", f"pod/{name}", f"{port}:{SCHEDULER_PORT}")
            where = ("-n", self._namespace, "--kubeconfig", self._kubectl.kubeconfig)
            self._run(f"forward-{name}", [self._kubectl.binary, *words, *where])
            yield {"targets": [f"127.0.0.1:{port}"], "labels": _where(pod)}

    def _pods(self, component: str) -> list[Object]:
        label = f"app.kubernetes.io/component={component}"
        return self._kubectl.items("pods", "-n", self._namespace, "-l", label)

    def _file(self, name: str, encoded: str) -> str:
        """A file of the kubeconfig's, for nobody else to read."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(encoded))
        return str(path)

    def _run(self, name: str, argv: Sequence[str | Path]) -> Process:
        process = Process(name, argv, folder=self._folder)
        self._processes.append(process)
        return process

    def _ready(self, server: Process) -> bool:
        server.demand_alive()
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=ASK_SECONDS) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def _get(self, path: str, **query: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=ASK_SECONDS) as answer:
            return json.load(answer)["data"]


def _job(name: str, how: Object, targets: Iterator[Object]) -> Object:
    return {"job_name": f"gpushare-{name}", **how, "static_configs": list(targets)}


def _where(pod: Object) -> dict[str, str]:
    name = pod["metadata"]["name"]
    return {"namespace": pod["metadata"]["namespace"], "pod": name, "instance": name}


def _port(pod: Object, container: str | None) -> int:
    """Of the pod's port `metrics`."""
    (port,) = (
        port["containerPort"]
        for each in pod["spec"]["containers"]
        if container in {None, each["name"]}
        for port in each.get("ports", ())
        if port["name"] == "metrics"
    )
    return int(port)
