"""The recipes for platforms: their values render, and every object has the shape that it needs."""

import re
from pathlib import Path

import pytest
import yaml
from charting import CHART, Object, Rendered, render
from schemas import NEWEST, validate

pytestmark = pytest.mark.slow
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
PAGES = Path(__file__).parents[2] / "docs" / "platforms"
VERSIONS = {
    "gpu-operator": "1.34.2",
    "eks": "1.33.5-eks-113cf36",
    "gke": "1.33.5-gke.1080000",
    "aks": "1.33.5",
    "openshift": "1.33.5",
    "k3s": "1.33.5+k3s1",
    "rke2": "1.33.5+rke2r1",
}
CONSTRAINTS_REQUIRED = {
    "allowHostDirVolumePlugin",
    "allowHostIPC",
    "allowHostNetwork",
    "allowHostPID",
    "allowHostPorts",
    "allowPrivilegedContainer",
    "readOnlyRootFilesystem",
}
"""As the OpenShift reference of the object lists them."""
SERVED_BY_KUBERNETES = re.compile(r"^(v1|[a-z]+/v\d\w*|[a-z.]+\.k8s\.io/v\d\w*)$")


def values(name: str) -> Object:
    """The values of a platform."""
    found: Object = yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())
    return found


def rendered(name: str, **more: Object) -> Rendered:
    """The chart with a platform's values, for a version as that platform names it."""
    return render(VERSIONS[name], {**values(name), **more})


def plugin(found: Rendered) -> Object:
    """The device plugin's pod."""
    pod: Object = found.one("DaemonSet", "-device-plugin")["spec"]["template"]["spec"]
    return pod


def test_every_platform_has_values_a_version_and_a_page() -> None:
    """No example is left out of these tests, and a page states how far it was tried."""
    assert {path.stem for path in EXAMPLES} == set(VERSIONS)
    pages = {path: path.read_text() for path in PAGES.glob("*.md")}
    for name in VERSIONS:
        assert any(f"examples/{name}.yaml`" in text for text in pages.values()), name
    assert all("Nobody ran this recipe on its platform" in text for text in pages.values())


@pytest.mark.parametrize("name", VERSIONS)
def test_every_object_of_a_platform_is_valid(name: str) -> None:
    """kube-scheduler is the released one, and no object has an unknown field."""
    found = rendered(name)
    for item in found.objects:
        if SERVED_BY_KUBERNETES.match(item["apiVersion"]):
            validate(item, "1.33")
        else:
            assert item["kind"] == "SecurityContextConstraints"
    (scheduler,) = (pod for part, pod in found.pods() if part == "scheduler")
    assert scheduler["containers"][0]["image"].endswith(f":v{re.split('[-+]', VERSIONS[name])[0]}")


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_manifests_of_a_page_are_valid(page: Path) -> None:
    """Blocks of YAML are objects of Kubernetes or values that parse."""
    for block in re.findall(r"```yaml[^\n]*\n(.*?)```", page.read_text(), re.DOTALL):
        document = yaml.safe_load(block)
        assert document
        if "kind" in document:
            validate(document, NEWEST)


@pytest.mark.parametrize("name", ["gpu-operator", "openshift"])
def test_a_driver_upgrade_removes_the_plugin(name: str) -> None:
    """The plugin runs only while the operator lets clients of the driver run."""
    assert plugin(rendered(name))["nodeSelector"] == {"nvidia.com/gpu.deploy.client": "true"}
    old = values(name)["devicePlugin"] | {"nodeSelector": None}
    assert not plugin(rendered(name, devicePlugin=old)).get("nodeSelector")


def allows(constraints: Object, pod: Object) -> bool:
    """Whether SecurityContextConstraints admit a pod, by the fields that pods of this chart use."""
    contexts = [item["securityContext"] for item in pod["containers"]]
    added = {name for item in contexts for name in item["capabilities"].get("add", ())}
    kinds = {key for volume in pod["volumes"] for key in volume if key != "name"}
    return (
        constraints["allowHostPID"] >= pod.get("hostPID", False)
        and not pod.get("hostNetwork")
        and added <= set(constraints["allowedCapabilities"])
        and kinds <= set(constraints["volumes"])
        and all(not item["allowPrivilegeEscalation"] for item in contexts)
        and all(item["readOnlyRootFilesystem"] for item in contexts)
        and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )


@pytest.mark.parametrize(("mps", "processes"), [(False, True), (False, False), (True, False)])
def test_openshift_admits_the_plugin_and_allows_nothing_that_it_does_not_need(
    *, mps: bool, processes: bool
) -> None:
    """Processes of the node by the value or with MPS, capabilities with MPS alone."""
    own = values("openshift")["devicePlugin"] | {"hostProcesses": processes}
    found = rendered("openshift", mps={"enabled": mps}, devicePlugin=own)
    (constraints,) = found.of("SecurityContextConstraints")
    assert set(constraints) >= CONSTRAINTS_REQUIRED
    pod = plugin(found)
    assert allows(constraints, pod)
    assert constraints["allowHostPID"] == (mps or processes)
    assert bool(constraints["allowedCapabilities"]) == mps
    assert not constraints["allowPrivilegedContainer"]
    assert not constraints["users"]
    assert not constraints["groups"]
    assert pod["containers"][0]["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}


def test_openshift_gives_the_constraints_to_the_plugin_alone() -> None:
    """One role names them, and one binding gives that role to one service account."""
    found = rendered("openshift")
    (constraints,) = found.of("SecurityContextConstraints")
    (role,) = (
        item for item in found.of("ClusterRole") if item["metadata"]["name"].endswith("-scc")
    )
    assert role["rules"][0]["resourceNames"] == [constraints["metadata"]["name"]]
    bound = {
        item["roleRef"]["name"]: item["subjects"]
        for item in found.of("RoleBinding")
        if item["metadata"]["name"].endswith("-scc")
    }
    ((account,), (group,)) = (
        bound[role["metadata"]["name"]],
        bound["system:openshift:scc:nonroot-v2"],
    )
    assert (account["kind"], account["name"]) == (
        "ServiceAccount",
        plugin(found)["serviceAccountName"],
    )
    assert (group["kind"], group["name"]) == ("Group", "system:serviceaccounts:gpu-system")


def test_the_other_pods_fit_nonroot_on_openshift() -> None:
    """They run as a user other than root, without host directories and capabilities."""
    found = rendered("openshift", dashboard={"enabled": True})
    pods = [pod for part, pod in found.pods() if part != "device-plugin"]
    pods += [pod for _, pod in found.ending_pods()]
    assert len(pods) >= 5
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
        for container in pod["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", sorted(set(VERSIONS) - {"openshift"}))
def test_other_platforms_get_nothing_of_openshift(name: str) -> None:
    """No object that their API server does not know."""
    assert not rendered(name).of("SecurityContextConstraints")


def test_gke_reaches_the_webhook_through_the_firewall_of_a_private_cluster() -> None:
    """The webhook listens on a port that the firewall opens to the control plane."""
    pod = rendered("gke").one("Deployment", "-webhook")["spec"]["template"]["spec"]
    assert 10250 in {port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert not pod.get("hostNetwork")


def test_aks_leaves_the_webhook_as_it_is() -> None:
    """Otherwise AKS and a GitOps tool change its namespaceSelector in turns."""
    (item,) = rendered("aks").of("MutatingWebhookConfiguration")
    assert item["metadata"]["annotations"]["admissions.enforcer/disabled"] == "true"
