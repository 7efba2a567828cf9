"""The chart of model servers: what each server is started with and how its pods are made."""

from typing import Any

import pytest
from charting import SERVING, render
from servingchart import MODEL, SERVERS, container, serve

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("server", "command"),
    [
        (
            "tensorflow",
            (
                "/usr/bin/tensorflow_model_server --port=8500 --rest_api_port=8501"
                " --model_name=mnist --model_base_path=/models/mnist"
                " --monitoring_config_file=/etc/gpushare-serving/monitoring.config"
            ),
        ),
        (
            "triton",
            (
                "tritonserver --model-repository=/models/mnist --http-port=8000 --grpc-port=8001"
                " --allow-metrics=true --metrics-port=8002"
            ),
        ),
        (
            "torchserve",
            (
                "torchserve --start --foreground"
                " --ts-config=/etc/gpushare-serving/config.properties"
                " --model-store=/models/mnist --models=mnist=mnist.mar"
            ),
        ),
        (
            "vllm",
            "vllm serve /models/mnist --served-model-name=mnist --host=0.0.0.0 --port=8000",
        ),
    ],
)
def test_servers_are_started_through_the_script(server: str, command: str) -> None:
    """The fraction is worked out in the container: no figure of it is in the manifest."""
    found = container(serve(server, extraArgs=["--more=1"]))
    assert found["command"] == ["/bin/sh", "/etc/gpushare-serving/start.sh"]
    own = [server, "share", "600", "1", "ALIYUN_COM"]
    assert found["args"] == [*own, *command.split(), "--more=1"]
    assert found["resources"]["limits"] == {"aliyun.com/gpu-mem": "3"}


def test_the_script_is_the_tested_one() -> None:
    """What is mounted is byte for byte the file that the tests of the script run."""
    (config,) = serve().of("ConfigMap")
    assert config["data"]["start.sh"] == (SERVING / "files" / "start.sh").read_text()


@pytest.mark.parametrize("server", SERVERS)
def test_whole_gpus_are_limited_by_nothing(server: str) -> None:
    """With gpuCount the server starts by itself, on the resource of exclusive GPUs."""
    found = container(serve(server, gpuMemory=0, gpuCount=2))
    assert found["resources"]["limits"] == {"aliyun.com/gpu": "2"}
    assert "start.sh" not in " ".join(found["command"])


def test_a_command_of_the_users_gets_its_fraction() -> None:
    """It is one text for the shell, behind the script that sets the variables."""
    found = container(serve("custom"))
    assert found["args"][5:] == ["sh", "-c", "run --on $PORT", "custom"]


def test_rule_head_room_processes_and_names_reach_the_script() -> None:
    """Everything that the script goes by is in its arguments."""
    fraction = {"rule": "quotient", "contextMiB": 0, "processes": 2}
    found = container(
        serve(memoryFraction=fraction, annotationPrefix="EXAMPLE", resourceDomain="example.com")
    )
    assert found["args"][:5] == ["tensorflow", "quotient", "0", "2", "EXAMPLE"]
    assert found["resources"]["limits"] == {"example.com/gpu-mem": "3"}


def test_large_amounts_of_memory_have_no_exponent() -> None:
    """The script computes with whole numbers."""
    fraction = {"contextMiB": 1_000_000, "modelMiB": 2_000_000}
    found = container(serve("vllm", memoryFraction=fraction))
    assert found["args"][2] == "1000000"
    assert {"name": "GPUSHARE_MODEL_MIB", "value": "2000000"} in found["env"]


def test_workers_of_torchserve_are_the_processes_that_share() -> None:
    """The figure that parts the share is the one that TorchServe starts workers by."""
    (config,) = serve("torchserve", memoryFraction={"processes": 3}).of("ConfigMap")
    lines = config["data"]["config.properties"].splitlines()
    assert "default_workers_per_model=3" in lines
    assert "inference_address=http://0.0.0.0:8080" in lines
    assert "management_address=http://127.0.0.1:8081" in lines


def test_torchserve_starts_a_worker_for_each_of_its_gpus() -> None:
    """It gives its workers to GPUs in turn, so fewer would leave a GPU unused."""

    def workers(**values: Any) -> str:
        (config,) = serve("torchserve", gpuMemory=0, **values).of("ConfigMap")
        (line,) = [
            line
            for line in config["data"]["config.properties"].splitlines()
            if line.startswith("default_workers_per_model=")
        ]
        return str(line.partition("=")[2])

    assert workers(gpuCount=2) == "2"
    assert workers(gpuCount=2, memoryFraction={"processes": 4}) == "4"


def test_a_deployment_may_take_as_long_as_its_model_loads() -> None:
    """With 10 minutes for node and image, so that a slow start is not a failed rollout."""
    for seconds in (600, 86400):
        (deployment,) = serve(probes={"startupSeconds": seconds}).of("Deployment")
        assert deployment["spec"]["progressDeadlineSeconds"] == seconds + 600


@pytest.mark.parametrize("name", ["on", "yes", "2024", "1e5"])
def test_the_name_of_a_release_stays_a_text(name: str) -> None:
    """YAML reads each of these unquoted as a boolean or a number."""
    values = {"server": "tensorflow", **MODEL, "autoscaling": {"enabled": True}, "cpu": 1}
    for item in render(values=values, chart=SERVING, release=name).objects:
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == name


def test_labels_are_arenas() -> None:
    """Arena's own commands find the Deployment and its pods by these."""
    (deployment,) = serve(servingName="digits", servingVersion="2", labels={"team": "a"}).of(
        "Deployment"
    )
    assert deployment["metadata"]["name"] == "mnist-tensorflow-serving"
    template = deployment["spec"]["template"]["metadata"]["labels"]
    wanted = {
        "app": "tensorflow-serving",
        "release": "mnist",
        "heritage": "Helm",
        "chart": "gpu-serving-0.1.0",
        "servingName": "digits",
        "serviceName": "digits",
        "servingType": "tf-serving",
        "servingVersion": "2",
    }
    assert wanted.items() <= deployment["metadata"]["labels"].items()
    assert (wanted | {"team": "a"}).items() <= template.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template.items()


def test_a_users_label_never_parts_pods_from_their_deployment() -> None:
    """A label of the chart's own keeps its value whatever the release requests."""
    (deployment,) = serve(labels={"release": "other"}).of("Deployment")
    assert deployment["spec"]["template"]["metadata"]["labels"]["release"] == "mnist"


@pytest.mark.parametrize(
    ("server", "ready", "live", "metrics"),
    [
        ("tensorflow", "/v1/models/mnist", "", "8501/monitoring/prometheus/metrics"),
        ("triton", "/v2/health/ready", "/v2/health/live", "8002/metrics"),
        ("torchserve", "/ping", "/ping", "8082/metrics"),
        ("vllm", "/health", "/health", "8000/metrics"),
        ("custom", "/ok", "/ok", "9000/stats"),
    ],
)
def test_probes_and_metrics_ask_where_the_server_answers(
    server: str, ready: str, live: str, metrics: str
) -> None:
    """A pod is ready when its model answers; Prometheus finds the figures by annotations."""
    own = {"restApiPort": 9000, "probes": {"path": "/ok"}, "metrics": {"path": "/stats"}}
    rendered = serve(server, **own if server == "custom" else {})
    found = container(rendered)
    assert found["readinessProbe"]["httpGet"] == {"path": ready, "port": "http"}
    assert found["startupProbe"]["httpGet"] == {"path": ready, "port": "http"}
    assert found["startupProbe"]["failureThreshold"] * 2 == 600
    probe = found["livenessProbe"]
    assert probe["httpGet"]["path"] == live if live else probe["tcpSocket"] == {"port": "http"}
    (deployment,) = rendered.of("Deployment")
    notes = deployment["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] + notes["prometheus.io/path"] == metrics


@pytest.mark.parametrize(
    "values",
    [
        {"command": "run", "modelName": ""},
        {"command": "run", "modelName": "team/mnist"},
        {"modelConfigFile": "/m", "modelName": ""},
    ],
)
def test_a_model_without_a_path_of_its_own_is_ready_when_its_port_is_open(values: Any) -> None:
    """No request of HTTP could be answered where the name is unknown, or has a slash."""
    found = container(serve(**values))
    for probe in ("startupProbe", "readinessProbe"):
        assert found[probe]["tcpSocket"] == {"port": "http"}
        assert "httpGet" not in found[probe]


@pytest.mark.parametrize("server", ["triton", "torchserve", "custom"])
def test_metrics_may_have_a_port_of_their_own(server: str) -> None:
    """It is the container's, Prometheus' and the server's alike."""
    rendered = serve(server, metrics={"port": 9100}, restApiPort=9000)
    ports = {item["name"]: item["containerPort"] for item in container(rendered)["ports"]}
    assert (ports["metrics"], ports["http"]) == (9100, 9000)
    (deployment,) = rendered.of("Deployment")
    notes = deployment["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == "9100"


def test_a_custom_server_without_ports_has_no_service() -> None:
    """What listens nowhere is neither probed nor announced."""
    rendered = serve("custom")
    assert rendered.of("Service") == []
    assert {"ports", "readinessProbe", "livenessProbe"} & container(rendered).keys() == set()


def test_containers_cannot_gain_anything() -> None:
    """No capability, no escalation, no token of the API server."""
    rendered = serve()
    (pod,) = [spec for _, spec in rendered.pods()]
    assert container(rendered)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["automountServiceAccountToken"] is False


def test_a_users_annotation_stands_in_place_of_the_charts() -> None:
    """Each is there once; a release may have its metrics left alone."""
    (deployment,) = serve(annotations={"prometheus.io/scrape": "false"}).of("Deployment")
    notes = deployment["spec"]["template"]["metadata"]["annotations"]
    assert (notes["prometheus.io/scrape"], notes["prometheus.io/port"]) == ("false", "8501")


def test_variables_are_the_releases_and_arenas() -> None:
    """Images made for arena find where they run under its names; each is there once, the user's."""
    own = [{"name": "ARENA_POD_IP", "value": "own"}, {"name": "MODEL_CACHE", "value": "1"}]
    env = container(serve(envs={"MODEL_CACHE": "1", "ARENA_POD_IP": "own"}))["env"]
    assert env[-2:] == own
    fields = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in env[:-2]}
    assert fields == {
        "ARENA_NODE_NAME": "spec.nodeName",
        "ARENA_POD_NAME": "metadata.name",
        "ARENA_POD_NAMESPACE": "metadata.namespace",
    }


def test_names_that_yaml_reads_as_something_else_stay_names() -> None:
    """``NO`` is a boolean to YAML and ``123`` a number; large numbers have no exponent."""
    rendered = serve(
        envs={"NO": "1"},
        envsFromSecret={"Y": "123"},
        data=[{"claim": "2024", "mountPath": "/x"}],
        schedulerName="123",
        runtimeClassName="1e3",
        memory=17179869184,
        gpuMemory=2000000,
    )
    ((_, spec),) = rendered.pods()
    (box,) = spec["containers"]
    env = {one["name"]: one for one in box["env"]}
    assert env["NO"]["value"] == "1"
    assert env["Y"]["valueFrom"]["secretKeyRef"] == {"name": "123", "key": "Y"}
    assert spec["volumes"][-1]["persistentVolumeClaim"]["claimName"] == "2024"
    assert (spec["schedulerName"], spec["runtimeClassName"]) == ("123", "1e3")
    limits = {"memory": "17179869184", "aliyun.com/gpu-mem": "2000000"}
    assert box["resources"]["limits"] == limits


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ([], ["--tensor-parallel-size=2"]),
        (["-tp", "1"], []),
        (["-dpn=2"], []),
        (["--pipeline-parallel-size=2"], []),
        (["--tensor_parallel_size", "1"], []),
        (["--api-key=team-dp-tp"], ["--tensor-parallel-size=2"]),
        (["--chat-template=/parallel.jinja"], ["--tensor-parallel-size=2"]),
    ],
)
def test_vllm_uses_all_of_its_gpus(more: list[str], option: list[str]) -> None:
    """Left to itself it takes one; a user's own options stay."""
    found = container(serve("vllm", gpuMemory=0, gpuCount=2, extraArgs=more))
    assert found["command"][6:] == [*option, *more]


def test_volumes_are_read_only_unless_configured() -> None:
    """A model is mounted where it was requested; a server cannot change it."""
    rendered = serve(
        data=[{"claim": "models", "mountPath": "/models"}],
        dataDirs=[{"hostPath": "/srv/cache", "mountPath": "/cache", "readOnly": False}],
    )
    mounts = {item["mountPath"]: item["readOnly"] for item in container(rendered)["volumeMounts"]}
    assert mounts == {"/etc/gpushare-serving": True, "/models": True, "/cache": False}


@pytest.mark.parametrize(("version", "group"), [("1.20.2", "v2beta2"), ("1.34.0", "v2")])
def test_the_autoscaler_speaks_the_clusters_version(version: str, group: str) -> None:
    """It goes by the given metrics, and the Deployment leaves the number of pods to it."""
    metric = {"type": "Pods", "pods": {"metric": {"name": "queue"}}}
    rendered = serve(version=version, autoscaling={"enabled": True, "metrics": [metric]})
    (scaler,) = rendered.of("HorizontalPodAutoscaler")
    assert scaler["apiVersion"] == f"autoscaling/{group}"
    assert scaler["spec"]["metrics"] == [metric]
    (deployment,) = rendered.of("Deployment")
    assert "replicas" not in deployment["spec"]


def test_changed_configuration_restarts_the_server() -> None:
    """Servers read their files once, so pods carry their digest."""

    def digest(**values: Any) -> str:
        (deployment,) = serve("torchserve", **values).of("Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"])

    assert digest() == digest()
    assert digest() != digest(memoryFraction={"processes": 2})


def test_servers_on_shares_take_turns_to_start_unless_configured_otherwise() -> None:
    """For as long as they may take to load; exclusive GPUs have nobody to wait for."""

    def turn(**values: Any) -> str | None:
        (deployment,) = serve(**values).of("Deployment")
        notes = deployment["spec"]["template"]["metadata"]["annotations"]
        found: str | None = notes.get("gpushare/start-turn")
        return found

    assert turn() == "600"
    assert turn(probes={"startupSeconds": 90}) == "90"
    assert turn(startTurn=False) is None
    assert turn(gpuMemory=0, gpuCount=1) is None
