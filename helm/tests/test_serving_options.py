"""The chart of model servers: files, folders, shared memory, versions, probes and updates."""

import helm_python as helm
import pytest
from charting import SERVING, Object, render
from schemas import validate
from servingchart import MODEL, SCHEMAS, container, serve

pytestmark = pytest.mark.slow

OPTIONS: Object = {
    "configFiles": [{"path": "/etc/one.conf", "content": 'a: "b"\n{{ c }}\n'}],
    "emptyDirs": [
        {"name": "cache", "mountPath": "/cache", "sizeLimit": "1Gi"},
        {"name": "logs", "mountPath": "/logs", "subPathExpr": "$(ARENA_POD_NAME)"},
    ],
    "data": [{"claim": "models", "mountPath": "/m", "subPathExpr": "$(ARENA_POD_NAME)"}],
    "sharedMemory": "2Gi",
    "strategy": {"maxSurge": 0, "maxUnavailable": "50%"},
    "probes": {"liveness": {"exec": {"command": ["true"]}, "periodSeconds": 30}},
}


def pod(**values: object) -> Object:
    """The one pod of a release with the options."""
    (found,) = [spec for _, spec in serve(**{**OPTIONS, **values}).pods()]
    return dict(found)


@pytest.mark.parametrize("version", SCHEMAS)
def test_objects_with_every_option_are_what_the_api_takes(version: str) -> None:
    """All options together pass the schemas of old and new Kubernetes."""
    rendered = serve(version=f"{version}.0", **OPTIONS, versionPolicy="all")
    for item in rendered.objects:
        validate(item, version)


def test_a_file_is_in_the_container_as_it_was_given() -> None:
    """Byte for byte, at its path, and pods are replaced when it changes."""
    (config,) = serve(**OPTIONS).of("ConfigMap")
    assert config["data"]["file-0"] == OPTIONS["configFiles"][0]["content"]
    mounts = container(serve(**OPTIONS))["volumeMounts"]
    assert {
        "name": "gpushare-serving",
        "mountPath": "/etc/one.conf",
        "subPath": "file-0",
        "readOnly": True,
    } in mounts


def test_folders_and_shared_memory_have_volumes() -> None:
    """Each mount names a volume of the pod, with its limit of size where one is set."""
    found = pod()
    volumes = {volume.pop("name"): volume for volume in found["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in found["containers"][0]["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} == volumes.keys()
    assert volumes["shared-memory"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    assert volumes["empty-dir-cache"] == {"emptyDir": {"sizeLimit": "1Gi"}}
    assert volumes["empty-dir-logs"] == {"emptyDir": {}}
    assert mounts["/logs"]["subPathExpr"] == mounts["/m"]["subPathExpr"] == "$(ARENA_POD_NAME)"
    assert "readOnly" not in mounts["/cache"]
    own = {"name": "GPUSHARE_OWN_SHM", "value": "2Gi"}
    assert own in found["containers"][0]["env"]


@pytest.mark.parametrize("limit", [None, "12"])
def test_the_server_learns_that_it_may_use_more_than_its_share(limit: str | None) -> None:
    """By the annotation that raises its limit; the start script then reads it from CUDA."""
    notes = {"gpushare/memory-limit": limit} if limit else {}
    env = {each["name"]: each.get("value") for each in container(serve(annotations=notes))["env"]}
    assert env.get("GPUSHARE_MAY_BURST") == limit


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("latest", "latest { num_versions: 1 }"),
        ("latest:3", "latest { num_versions: 3 }"),
        ("specific:42", "specific { versions: 42 }"),
        ("all", "all {}"),
    ],
)
def test_versions_are_chosen_in_tensorflow_servings_own_file(policy: str, text: str) -> None:
    """Name, path and policy are in the file that the server is started with, and nowhere else."""
    rendered = serve(versionPolicy=policy)
    (config,) = rendered.of("ConfigMap")
    lines = [line.strip() for line in config["data"]["models.config"].splitlines()]
    assert lines[2:6] == [
        'name: "mnist"',
        'base_path: "/models/mnist"',
        'model_platform: "tensorflow"',
        f"model_version_policy {{ {text} }}",
    ]
    args = container(rendered)["args"]
    assert "--model_config_file=/etc/gpushare-serving/models.config" in args
    assert not [arg for arg in args if arg.startswith(("--model_name", "--model_base_path"))]
    assert container(rendered)["readinessProbe"]["httpGet"]["path"] == "/v1/models/mnist"


def test_the_users_monitoring_file_stands_in_place_of_the_charts() -> None:
    """TensorFlow Serving takes one."""
    args = container(serve(monitoringConfigFile="/m/own.config"))["args"]
    found = [arg for arg in args if arg.startswith("--monitoring_config_file")]
    assert found == ["--monitoring_config_file=/m/own.config"]


def test_a_command_runs_in_the_shell_that_the_image_has() -> None:
    """Bash where the command needs it."""
    assert container(serve("custom", shell="bash"))["args"][5:8] == ["bash", "-c", "run --on $PORT"]


def test_a_probe_of_the_users_stands_in_place_of_one_of_the_charts() -> None:
    """The others stay as they are; without a port the chart has none of its own."""
    found = pod()["containers"][0]
    assert found["livenessProbe"] == OPTIONS["probes"]["liveness"]
    assert found["readinessProbe"]["httpGet"]["path"] == "/v1/models/mnist"
    portless = container(serve("custom", probes=OPTIONS["probes"]))
    assert portless["livenessProbe"] == OPTIONS["probes"]["liveness"]
    assert "readinessProbe" not in portless


def test_an_update_needs_no_more_shares_than_it_may_have() -> None:
    """Numbers are numbers and percentages texts; unset, the API's own hold."""
    (deployment,) = serve(**OPTIONS).of("Deployment")
    limits = {"maxSurge": 0, "maxUnavailable": "50%"}
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": limits}
    (deployment,) = serve().of("Deployment")
    assert "strategy" not in deployment["spec"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"server": "vllm", "versionPolicy": "all"}, "option of TensorFlow Serving, not of vllm"),
        ({"server": "triton", "monitoringConfigFile": "/m"}, "monitoringConfigFile is an option"),
        ({"versionPolicy": "all", "modelConfigFile": "/m"}, "into the file of modelConfigFile"),
        ({"versionPolicy": "newest"}, "versionPolicy"),
        ({"strategy": {"maxSurge": 0, "maxUnavailable": "0%"}}, "no pod could ever be replaced"),
        ({"strategy": {"maxSurge": "much"}}, "maxSurge"),
        ({"shell": "fish"}, "shell"),
        ({"configFiles": [{"path": "one", "content": ""}]}, "path"),
        ({"emptyDirs": [{"name": "A", "mountPath": "/a"}]}, "name"),
    ],
)
def test_impossible_options_are_refused(values: Object, complaint: str) -> None:
    """A sentence states what to set, before anything reaches a cluster."""
    with pytest.raises(helm.HelmError, match=complaint):
        render(values={**MODEL, **values}, chart=SERVING, release="mnist")


def test_secrets_and_devices_are_in_the_container() -> None:
    """A variable names its Secret with a key of its own name; a device is a limit."""
    values = {"envsFromSecret": {"TOKEN": "hub"}, "devices": {"rdma/hca": 1}}
    found = container(serve(envs={"A": "1"}, **values))
    env = {each["name"]: each for each in found["env"]}
    assert env["A"]["value"] == "1"
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "TOKEN"}}
    assert found["resources"]["limits"]["rdma/hca"] == "1"


TRITON: Object = {"server": "triton", "modelPath": "/models", "gpuMemory": 0, "gpuCount": 1}


def test_triton_loads_the_models_that_are_named() -> None:
    """Models are named in explicit mode, and a backend has an image of its own."""
    found = container(serve(**TRITON, loadModels=["one", "two"], backend="vllm"))
    words = ["--model-control-mode=explicit", "--load-model=one", "--load-model=two"]
    assert found["command"][-3:] == words
    assert found["image"] == "nvcr.io/nvidia/tritonserver:24.08-vllm-python-py3"
    plain = container(serve(**TRITON))
    assert plain["image"] == "nvcr.io/nvidia/tritonserver:24.08-py3"
    assert "--model-control-mode=explicit" not in plain["command"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"loadModels": ["one"]}, "loadModels is an option of Triton"),
        ({"backend": "vllm", "gpuMemory": 0, "gpuCount": 1}, "backend is an option of Triton"),
        ({**TRITON, "backend": "vllm", "gpuMemory": 2, "gpuCount": 0}, "set gpuCount"),
        ({"devices": {"aliyun.com/gpu-mem": 1}}, "devices is for resources of others"),
        ({"envs": {"A": "1"}, "envsFromSecret": {"A": "s"}}, "both set A"),
    ],
)
def test_newer_options_that_do_not_go_together(values: Object, sentence: str) -> None:
    """Each is refused with a sentence."""
    with pytest.raises(helm.HelmError, match=sentence):
        serve(**values)
