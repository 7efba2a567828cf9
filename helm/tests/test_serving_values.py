"""What the chart of model servers makes of its values, and which it refuses with a sentence."""

import helm_python as helm
import pytest
from charting import SERVING, Object, render
from schemas import validate
from servingchart import MODEL, SCHEMAS, SERVERS, serve

pytestmark = pytest.mark.slow


def test_lint_is_clean() -> None:
    """The linter of Helm reports nothing, in its strict form."""
    report = helm.lint(SERVING, values=MODEL, strict=True, kube_version="v1.20.2")
    assert report["errors"] == []
    assert [item["error"] for item in report["messages"]] == []


def _use_of(resource: str, kind: str = "Utilization") -> Object:
    """A metric of the autoscaler."""
    target = {"type": kind, f"average{kind.removeprefix('Average')}": 80}
    return {"type": "Resource", "resource": {"name": resource, "target": target}}


@pytest.mark.parametrize("version", SCHEMAS)
@pytest.mark.parametrize("server", SERVERS)
def test_objects_are_what_the_api_takes(server: str, version: str) -> None:
    """Every object of every server passes the schemas of old and new Kubernetes."""
    rendered = serve(
        server, f"{version}.0", cpu=1, memory="2Gi", autoscaling={"enabled": True}, port=9000
    )
    for item in rendered.objects:
        validate(item, version)
    kinds = [item["kind"] for item in rendered.objects]
    assert sorted(kinds) == ["ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Service"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"gpuCount": 1}, "gpucount and gpumemory should not be used at the same time."),
        ({"gpuMemory": 0}, "set gpuMemory for a share of a GPU"),
        ({"gpuMemory": 0, "gpuCount": 1, "gpuCore": 10}, "gpuCore is a part of a shared GPU"),
        ({"gpuCore": 101}, "maximum"),
        ({"modelPath": ""}, "modelPath is empty"),
        ({"modelName": ""}, "modelName is empty"),
        ({"modelName": "a b"}, "modelName"),
        ({"server": "vllm", "modelConfigFile": "/m"}, "option of TensorFlow Serving"),
        ({"server": "custom"}, "set image"),
        ({"server": "custom", "image": "a"}, "set command"),
        ({"command": "a", "extraArgs": ["b"]}, "put them into command"),
        ({"autoscaling": {"enabled": True}}, "set cpu"),
        ({"autoscaling": {"enabled": True, "metrics": [_use_of("memory")]}}, "set memory"),
        ({"autoscaling": {"enabled": True, "minReplicas": 9}, "cpu": 1}, "is larger than"),
        ({"memoryFraction": {"processes": 0}}, "minimum"),
        ({"gpumemory": 3}, "'gpumemory' not allowed"),
    ],
)
def test_impossible_values_are_refused(values: Object, complaint: str) -> None:
    """A sentence states what to set, before anything reaches a cluster."""
    with pytest.raises(helm.HelmError, match=complaint):
        render(values={**MODEL, **values}, chart=SERVING, release="mnist")


@pytest.mark.parametrize(
    ("server", "ports", "complaint"),
    [
        ("tensorflow", {"port": 8501}, "both 8501: gRPC and HTTP need a port each"),
        ("vllm", {"port": 8000}, "both 8000"),
        ("custom", {"port": 9000, "restApiPort": 9000}, "both 9000"),
        ("triton", {"port": 8002}, "8002 is that of gRPC or HTTP"),
        ("triton", {"metrics": {"port": 8000}}, "8000 is that of gRPC or HTTP"),
        ("torchserve", {"restApiPort": 8082}, "8082 is that of gRPC or HTTP"),
        ("torchserve", {"restApiPort": 8081}, "port 8081 for its management"),
        ("torchserve", {"port": 7071}, "port 7071 for its management"),
        ("torchserve", {"metrics": {"port": 8081}}, "port 8081 for its management"),
    ],
)
def test_ports_that_are_taken_are_refused(server: str, ports: Object, complaint: str) -> None:
    """The server could not listen, or the API server would refuse the Service."""
    with pytest.raises(helm.HelmError, match=complaint):
        serve(server, **ports)


@pytest.mark.parametrize(
    ("server", "values"),
    [
        ("custom", {"restApiPort": 9000, "metrics": {"port": 9000}}),
        ("custom", {"port": 9000, "metrics": {"port": 9000}}),
        ("torchserve", {"restApiPort": 8082, "metrics": {"port": 9000}}),
        ("torchserve", {"restApiPort": 8081, "command": "run"}),
    ],
)
def test_ports_that_a_server_may_share_are_accepted(server: str, values: Object) -> None:
    """Metrics of a custom server may be where it serves; a command has its own ports."""
    assert serve(server, **values).of("Service")


def test_notes_say_how_to_reach_it() -> None:
    """The notes name the share, the Deployment to wait for and the port."""
    notes = serve().notes
    assert "3 units of a GPU" in notes
    assert "kubectl rollout status deployment/mnist-tensorflow-serving -n gpu-system" in notes
    assert "service/mnist-tensorflow-serving 8501" in notes
    assert "2 exclusive GPUs a pod" in serve(gpuMemory=0, gpuCount=2).notes
    devices = {"rdma/hca": 1, "amd.com/gpu": 2}
    assert " on amd.com/gpu and rdma/hca a pod:" in serve(gpuMemory=0, devices=devices).notes


def test_an_amount_of_cpu_is_measured_against_no_request() -> None:
    """The chart asks for a request only where the autoscaler needs it."""
    metrics = [_use_of("cpu", "AverageValue"), _use_of("memory", "AverageValue")]
    rendered = serve(autoscaling={"enabled": True, "metrics": metrics})
    assert rendered.of("HorizontalPodAutoscaler")[0]["spec"]["metrics"] == metrics
