"""Every supported cluster gets objects and a scheduler configuration that it understands."""

import pytest
from charting import Object, render
from schemas import NEWEST, validate

pytestmark = pytest.mark.slow

OLDEST_SCHEMA = (1, 25)
VERSIONS = ("1.20", "1.23", "1.26", "1.30", "1.34", NEWEST)
# Every value that adds an object or a field.
FULL: Object = {
    "imagePullSecrets": [{"name": "registry"}],
    "scheduler": {
        "nodeSelector": {"a": "b"},
        "podAnnotations": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
    },
    "extender": {"extraArgs": ["--stale-after=60"]},
    "webhook": {"enabled": True, "annotations": {"a": "b"}},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}], "schedulerFrom": [{"podSelector": {}}]},
    "devicePlugin": {
        "runtimeClassName": "nvidia",
        "nvml": {"hostPath": "/opt/nvml"},
        "nodeSelector": {"a": "b"},
        "podAnnotations": {"a": "b"},
        "numaHints": True,
        "hostProcesses": True,
        "extraArgs": ["--probe-seconds=9"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraVolumes": [{"name": "a", "hostPath": {"path": "/a"}}],
        "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
    },
}
ALONE: Object = {**FULL, "scheduler": {**FULL["scheduler"], "mode": "extender"}}


def schema_version(version: str) -> str:
    """The oldest schema at hand that is not older than the cluster."""
    numbers = tuple(map(int, version.split(".")))
    return ".".join(map(str, max(numbers, OLDEST_SCHEMA)))


def comparable(item: Object) -> Object:
    """The object under the name its API version has in the oldest schema; the shape is the same."""
    if item["apiVersion"] in {"policy/v1beta1", "batch/v1beta1"}:
        return {**item, "apiVersion": item["apiVersion"].replace("v1beta1", "v1")}
    return item


@pytest.mark.parametrize("values", [{}, FULL, ALONE], ids=["defaults", "full", "extender"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_for_the_cluster(version: str, values: Object) -> None:
    """No object has a field that is unknown, missing or of the wrong type."""
    objects = render(f"{version}.0", values).objects
    assert {"Deployment", "DaemonSet", "ClusterRole"} <= {item["kind"] for item in objects}
    for item in objects:
        validate(comparable(item), schema_version(version))


@pytest.mark.parametrize(
    ("version", "api_version"),
    [
        ("1.20.2", "v1beta1"),
        ("1.22.0", "v1beta2"),
        ("1.23.17", "v1beta3"),
        ("1.24.9", "v1beta3"),
        ("1.25.0", "v1"),
        ("1.30.4-eks-36c2a22", "v1"),
        (f"{NEWEST}.0", "v1"),
    ],
)
def test_scheduler_configuration_follows_the_cluster(version: str, api_version: str) -> None:
    """The configuration is in the newest version that this kube-scheduler reads."""
    config = render(version).scheduler_config()
    assert config["apiVersion"] == f"kubescheduler.config.k8s.io/{api_version}"


@pytest.mark.parametrize("version", [item for item in VERSIONS if item >= "1.30"])
def test_admission_policy_is_valid_where_clusters_have_it(version: str) -> None:
    """The policy and its binding have the shape of admissionregistration.k8s.io/v1."""
    values = {"admissionPolicy": {"enabled": True}, "verify": {"schedule": "17 4 * * *"}}
    rendered = render(f"{version}.0", values)
    names = ("allocation", "certificates", "device-plugin", "environment", "extender", "quota")
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        found = rendered.of(kind)
        assert len(found) == len((*names, "verify", "verify-pods"))
        for item in found:
            validate(item, version)


def test_scheduler_configuration_follows_the_tag_before_the_cluster() -> None:
    """Who names another kube-scheduler gets the configuration that this one reads."""
    config = render("1.20.2", {"scheduler": {"image": {"tag": "v1.26.3"}}}).scheduler_config()
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1"


@pytest.mark.parametrize(
    ("version", "image"),
    [
        ("1.20.2", "k8s.gcr.io/kube-scheduler:v1.20.2"),
        ("1.30.4-eks-36c2a22", "registry.k8s.io/kube-scheduler:v1.30.4"),
        ("1.31.1+k3s1", "registry.k8s.io/kube-scheduler:v1.31.1"),
    ],
)
def test_scheduler_image_is_the_clusters_own(version: str, image: str) -> None:
    """kube-scheduler is the released one of the cluster's version, without a vendor's suffix."""
    containers = dict(render(version).pods())["scheduler"]["containers"]
    assert containers[0]["image"] == image


@pytest.mark.parametrize(("version", "expected"), [("1.22.9", True), ("1.23.0", False)])
def test_plain_http_is_off_where_kube_scheduler_still_has_it(version: str, expected: bool) -> None:
    """Metrics leave the pod under TLS alone; newer releases do not know the flag."""
    command = dict(render(version).pods())["scheduler"]["containers"][0]["command"]
    assert ("--port=0" in command) is expected


def test_disruption_budget_follows_the_cluster() -> None:
    """policy/v1 came with 1.21 and its beta went with 1.25."""
    assert render("1.20.2").of("PodDisruptionBudget")[0]["apiVersion"] == "policy/v1beta1"
    assert render("1.21.0").of("PodDisruptionBudget")[0]["apiVersion"] == "policy/v1"


@pytest.mark.parametrize(
    ("version", "value", "flag"),
    [
        ("1.21.0", "refused", "off"),
        ("1.22.0", "refused", "refused"),
        ("1.33.0", "backlog", "backlog"),
        ("1.33.0", "off", "off"),
    ],
)
def test_pods_are_nominated_from_1_22_on(version: str, value: str, flag: str) -> None:
    """Before that kube-scheduler does not evaluate the nominated node first."""
    rendered = render(version, {"extender": {"nominate": value}})
    pods = [pod for name, pod in rendered.pods() if "scheduler" in name]
    (extender,) = [one for pod in pods for one in pod["containers"] if one["name"] == "extender"]
    assert f"--nominate={flag}" in extender["args"]
