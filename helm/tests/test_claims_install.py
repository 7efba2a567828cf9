"""GPUs as ResourceClaims: what is installed for them, and on which clusters."""

from typing import Any

import helm_python as helm
import pytest
from charting import Rendered, render

pytestmark = pytest.mark.slow

VERSION = "1.37.1"


def claims(version: str = VERSION, **values: Any) -> Rendered:
    """The chart with claims enabled, and other values."""
    return render(version, {"claims": {"enabled": True}, **values})


def plugin(rendered: Rendered) -> dict[str, Any]:
    """The plugin's pod."""
    return dict(rendered.pods())["device-plugin"]


def flags(rendered: Rendered) -> list[str]:
    """The plugin's arguments that concern claims."""
    (container,) = plugin(rendered)["containers"]
    words = ("--api", "--claims", "--plugins", "--policy", "--unhealthy-claims")
    return [flag for flag in container["args"] if flag.startswith(words)]


def rights(rendered: Rendered) -> dict[str, list[str]]:
    """Verbs on the API group of claims by resource."""
    role = rendered.one("ClusterRole", "-device-plugin")
    rules = [rule for rule in role["rules"] if rule["apiGroups"] == ["resource.k8s.io"]]
    return {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}


@pytest.mark.parametrize(
    ("version", "values"),
    [(VERSION, {}), ("1.35.0", {"api": "auto"}), ("1.20.2", {"api": "auto"}), ("1.20.2", {})],
)
def test_nothing_of_it_is_installed_without_need(version: str, values: dict[str, Any]) -> None:
    """By default, and with `auto` on a cluster without consumable capacity."""
    rendered = render(version, values)
    assert rendered.of("DeviceClass") == []
    assert flags(rendered) == []
    assert rights(rendered) == {}
    assert not [each for each in plugin(rendered)["volumes"] if "claims" in each["name"]]
    assert "ResourceClaims" not in rendered.notes


@pytest.mark.parametrize(
    ("values", "api"),
    [
        ({"claims": {"enabled": True}}, "devices"),
        ({"api": "claims"}, "claims"),
        ({"api": "auto"}, "auto"),
    ],
)
def test_the_plugin_gets_flags_directories_and_its_pods_uid(
    values: dict[str, Any], api: str
) -> None:
    """Kubelet's directories are mounted at their own paths, which the plugin registers."""
    rendered = render(VERSION, values)
    assert flags(rendered) == [
        f"--api={api}",
        "--claims",
        "--policy=binpack",
        "--unhealthy-claims=keep",
        "--plugins-registry=/var/lib/kubelet/plugins_registry",
        "--plugins-dir=/var/lib/kubelet/plugins",
    ]
    pod = plugin(rendered)
    (container,) = pod["containers"]
    assert "POD_UID" in [variable["name"] for variable in container["env"]]
    paths = {each["name"]: each.get("hostPath", {}).get("path") for each in pod["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert paths["plugins-registry"] == mounts["plugins-registry"]
    assert paths["claims"] == mounts["claims"] == "/var/lib/kubelet/plugins/gpu.gpushare.io"
    assert mounts["cdi"] == "/var/run/cdi"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_another_kubelet_directory_is_followed() -> None:
    """The registered socket has the path of the host."""
    rendered = claims(devicePlugin={"kubeletRoot": "/data/kubelet"})
    assert "--plugins-dir=/data/kubelet/plugins" in flags(rendered)
    (container,) = plugin(rendered)["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts["claims"] == "/data/kubelet/plugins/gpu.gpushare.io"


def test_cdi_files_are_written_also_where_the_device_plugin_uses_none() -> None:
    """A claim is delivered by CDI only."""
    rendered = claims(devicePlugin={"cdi": {"enabled": False}})
    (container,) = plugin(rendered)["containers"]
    assert "--cdi=off" in container["args"]
    assert "--cdi-dir=/var/run/cdi" in container["args"]
    assert "cdi" in [each["name"] for each in container["volumeMounts"]]


def test_the_order_of_slices_follows_the_policy_of_the_extender() -> None:
    """A claim gets the GPU that the extender would choose."""
    rendered = claims(
        claims={"enabled": True, "unhealthyPods": "evict"}, extender={"policy": "fragmentation"}
    )
    assert {"--policy=fragmentation", "--unhealthy-claims=evict"} <= set(flags(rendered))


def test_the_plugin_reads_claims_and_writes_slices_only() -> None:
    """It needs no list of claims: kubelet names each one."""
    assert rights(claims()) == {
        "resourceclaims": ["get"],
        "resourceslices": ["get", "list", "watch", "create", "patch", "delete"],
    }


def test_device_classes_select_shares_and_exclusive_gpus() -> None:
    """The second serves the extended resource of the original."""
    shares, exclusive = claims(resourceDomain="example.com").of("DeviceClass")
    assert shares["metadata"]["name"] == "gpushare"
    assert shares["spec"]["selectors"] == [
        {
            "cel": {
                "expression": "device.driver == 'gpu.gpushare.io' && "
                "device.allowMultipleAllocations"
            }
        }
    ]
    assert exclusive["metadata"]["name"] == "gpushare-exclusive"
    assert exclusive["spec"]["extendedResourceName"] == "example.com/gpu"


def test_a_policy_holds_the_plugin_to_slices_of_its_own_node() -> None:
    """Deletion included; the node is that of the token."""
    policy = claims().one("ValidatingAdmissionPolicy", "-resource-slices")["spec"]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert rule["resources"] == ["resourceslices"]
    own, driver, owner = (each["expression"] for each in policy["validations"])
    assert "spec.nodeName == variables.node" in own
    assert "spec.pool.name == variables.node" in own
    assert driver == "variables.slice.spec.driver == 'gpu.gpushare.io'"
    assert "owner.name == variables.node" in owner
    without = claims(admissionPolicy={"enabled": False}).of("ValidatingAdmissionPolicy")
    assert without == []


@pytest.mark.parametrize("values", [{"claims": {"enabled": True}}, {"api": "claims"}])
def test_older_clusters_are_refused_where_claims_are_required(values: dict[str, Any]) -> None:
    """Before 1.36 consumable capacity is off by default."""
    with pytest.raises(helm.HelmError, match=r"claims need Kubernetes 1\.36"):
        render("1.35.3", values)


def test_one_name_for_both_classes_is_refused() -> None:
    """The sentence names the two values."""
    with pytest.raises(helm.HelmError, match=r"claims\.deviceClass and claims\.exclusive"):
        claims(claims={"enabled": True, "exclusiveDeviceClass": "gpushare"})


def test_the_notes_name_the_label() -> None:
    """Whoever installs learns what to do next."""
    assert "gpushare/api=claims" in claims().notes
    assert "gpushare/api=devices" in render(VERSION, {"api": "auto"}).notes


@pytest.mark.parametrize("api", ["claims", "auto"])
def test_the_notes_wait_for_what_the_nodes_publish(api: str) -> None:
    """A node that offers claims has a ResourceSlice, and never advertises units of memory."""
    notes = render(VERSION, {"api": api}).notes
    assert "Wait until the nodes publish their GPUs as ResourceSlices" in notes
    assert "Wait until the nodes advertise" not in notes
    assert "Wait until the nodes advertise" in claims().notes


def share_test(values: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The pod of `helm test`, and the templates that it may name."""
    rendered = render(VERSION, values)
    return rendered.one("Pod", "-test-share")["spec"], rendered.of("ResourceClaimTemplate")


@pytest.mark.parametrize("api", ["claims", "auto"])
@pytest.mark.parametrize(
    ("unit", "memory"), [("GiB", "1Gi"), ("MiB", "1Mi"), ("256MiB", "256Mi"), ("2GiB", "2Gi")]
)
def test_the_test_of_the_chart_requests_a_claim_where_nodes_offer_claims(
    api: str, unit: str, memory: str
) -> None:
    """One unit by a template of the share class, and no scheduler: no such node has units."""
    pod, (template,) = share_test({"api": api, "devicePlugin": {"memoryUnit": unit}})
    [claim], [container] = pod["resourceClaims"], pod["containers"]
    assert claim == {
        "name": "share",
        "resourceClaimTemplateName": template["metadata"]["name"],
    }
    assert container["resources"]["claims"] == [{"name": "share"}]
    assert "limits" not in container["resources"]
    assert "schedulerName" not in pod
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "gpushare",
        "capacity": {"requests": {"memory": memory}},
    }


def test_the_template_of_the_test_is_there_before_its_pod() -> None:
    """A hook of the same event with a lower weight, which ends with the test."""
    rendered = render(VERSION, {"api": "claims"})
    (template,) = rendered.of("ResourceClaimTemplate")
    about, pod = (
        each["metadata"]["annotations"] for each in (template, rendered.one("Pod", "-test-share"))
    )
    assert int(about.pop("helm.sh/hook-weight")) < 0
    assert about == pod


@pytest.mark.parametrize("values", [{}, {"claims": {"enabled": True}}])
def test_the_test_of_the_chart_requests_a_unit_where_nodes_offer_devices(
    values: dict[str, Any],
) -> None:
    """Also where a label lets single nodes offer claims."""
    pod, templates = share_test(values)
    assert not templates
    assert "resourceClaims" not in pod
    assert pod["containers"][0]["resources"]["limits"] == {"aliyun.com/gpu-mem": "1"}
    assert pod["schedulerName"] == "gpushare-scheduler"
