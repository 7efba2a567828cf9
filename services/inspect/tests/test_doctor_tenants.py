"""``gpushare doctor`` where tenants give their pods the labels and names of the stack."""

import json
from collections.abc import Callable

import pytest
from doctorcluster import item, nvidia_plugin, only_one, plugin, sound, stack_pod
from drawncluster import FakeCluster
from invoking import Run

pytestmark = pytest.mark.slow

Change = Callable[[FakeCluster], object]
ORIGINAL_PLUGIN = {"component": "gpushare-device-plugin"}
ORIGINAL_EXTENDER = {"component": "gpushare-schd-extender"}


def findings(run: Run, cluster: FakeCluster) -> dict[str, list[str]]:
    """What the checks found, by name."""
    document = json.loads(run("doctor", "-o", "json", on=cluster).out)
    return {each["name"]: each["findings"] for each in document["items"] if each["findings"]}


def tenant(cluster: FakeCluster, labels: dict[str, str], namespace: str = "tenant") -> None:
    """A ready pod on n1 with these labels."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster.pod("x", node="n1", namespace=namespace, metadata={"labels": labels}, status=ready)


def without_extenders() -> FakeCluster:
    """The extenders are gone."""
    cluster = sound()
    for name in ("n1", "n2"):
        cluster.items.remove(item(cluster, f"scheduler-{name}"))
    return cluster


def restarting(cluster: FakeCluster, container: str) -> None:
    """A pod with the labels of the chart, whose container restarts."""
    stack_pod(cluster, "x", container, container, "n1", namespace="tenant")
    item(cluster, "x")["status"]["containerStatuses"] = [{"restartCount": 99}]


CLAIMED: dict[str, Change] = {
    "plugin": lambda c: restarting(c, "device-plugin"),
    "extender": lambda c: restarting(c, "extender"),
    "original plugin": lambda c: tenant(c, ORIGINAL_PLUGIN),
    "original extender": lambda c: tenant(c, ORIGINAL_EXTENDER),
    "nvidia's plugin": lambda c: nvidia_plugin(c, "n1", namespace="tenant", spec={}),
}


@pytest.mark.parametrize("claim", CLAIMED.values(), ids=CLAIMED)
def test_a_pod_of_a_tenant_is_no_fault_of_the_stack(run: Run, claim: Change) -> None:
    """A sound installation stays sound, whatever its tenants call their pods."""
    cluster = sound()
    claim(cluster)
    assert findings(run, cluster) == {}


@pytest.mark.parametrize(
    "claim",
    [
        lambda c: stack_pod(c, "x", "extender", "extender", "n1", namespace="tenant"),
        lambda c: tenant(c, ORIGINAL_EXTENDER),
    ],
)
def test_a_pod_of_a_tenant_does_not_hide_that_no_extender_runs(run: Run, claim: Change) -> None:
    """Where the release runs is known by the device plugins, which no tenant can imitate."""
    cluster = without_extenders()
    claim(cluster)
    assert findings(run, cluster)["extender-ready"] == ["no extender pod was found"]


def test_the_originals_extender_counts_in_kube_system(run: Run) -> None:
    """Its manifest installs it there."""
    cluster = without_extenders()
    tenant(cluster, ORIGINAL_EXTENDER, "kube-system")
    assert "extender-ready" not in findings(run, cluster)


def test_a_pod_of_a_tenant_does_not_hide_that_a_plugin_is_missing(run: Run) -> None:
    """A pod that mounts no socket of kubelet registers nothing there."""
    cluster = sound()
    only_one(cluster, "plugin-")
    stack_pod(cluster, "x", "device-plugin", "device-plugin", "n2", namespace="tenant")
    assert findings(run, cluster)["plugin-runs"] == ["n2 has no pod of the plugin"]


def test_an_older_installation_in_another_namespace_is_a_second_plugin(run: Run) -> None:
    """Its pods mount the sockets of kubelet, wherever they are."""
    cluster = sound()
    plugin(cluster, "x", "n1", "older")
    assert findings(run, cluster)["one-plugin"] == ["n1 has 2"]
