"""The policy of the device plugin's account: exactly what the plugin writes, on its own node."""

import pytest
from admission import IDX, SELF, Policy, held_by, labelled, pod, request
from charting import Object, Rendered, render

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import Resource, device_table
from gpucore.node.allocation.holdings import Held
from gpucore.node.reconcile.corrections import CorrectionInput, corrections
from gpucore.units import GIB, GpuIndex, GpuUuid, NodeName, PodUid
from gpucore.wire import names
from gpucore.wire.names import INVENTORY_HASH
from gpucore.wire.pod.spec import Container, Pod

ENABLED: Object = {"admissionPolicy": {"enabled": True}}
INVENTORY = Inventory(gpus=(Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15),), unit=GIB)


def pod_of_two_units() -> Pod:
    """A pod on node n1 that named no scheduler."""
    box = Container(name="c", limits={"aliyun.com/gpu-mem": "2"})
    uid, node = PodUid("u"), NodeName("n1")
    return Pod(uid=uid, namespace="default", name="p", node=node, containers=(box,))


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart with its policies."""
    return render("1.33.0", ENABLED)


@pytest.mark.slow
def test_a_token_without_a_node_is_held_to_the_other_rules_before_1_32() -> None:
    """Until 1.31 a token may name no node; what it may write is the same."""
    policy = Policy(render("1.31.0", ENABLED), "-device-plugin")
    assert policy.refuses(request(SELF), pod(), pod(**IDX)) == ""
    assert "changes annotations" in policy.refuses(request(SELF), pod(), pod(image="evil"))
    assert "its own node" in policy.refuses(request(SELF, node="n2"), pod(), pod(**IDX))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"annotations": {"node.alpha.kubernetes.io/ttl": "0"}}, "inventory annotations"),
        ({"finalizers": ["x/y"]}, "no finalizers"),
        ({"ownerReferences": [{"kind": "ConfigMap", "uid": "0"}]}, "no finalizers"),
        ({"annotations": {"NODE_TYPE": "p4", "GPU_TOPOLOGY": "{}"}}, ""),
    ],
)
def test_of_its_node_a_stolen_token_changes_the_inventory_alone(
    rendered: Rendered, change: Object, sentence: str
) -> None:
    """Other annotations, finalizers and owners of the Node stay as they are."""
    before: Object = {"metadata": {"name": "n1"}, "spec": {}}
    admission_request = request(SELF, node="n1", resource="nodes")
    answer = Policy(rendered, "-device-plugin").refuses(
        admission_request, before, held_by(before, **change)
    )
    assert (sentence in answer) if sentence else not answer


@pytest.mark.parametrize(
    ("left", "sentence"), [({"note": "1"}, ""), ({"GPU_TOPOLOGY": "{}"}, "inventory annotations")]
)
def test_of_its_node_the_plugin_removes_the_topology_alone(
    rendered: Rendered, left: Object, sentence: str
) -> None:
    """A node without links has none; annotations of others stay."""
    node: Object = {"metadata": {"name": "n1"}, "spec": {}}
    before = held_by(node, annotations={"note": "1", "GPU_TOPOLOGY": "{}"})
    answer = Policy(rendered, "-device-plugin").refuses(
        request(SELF, node="n1", resource="nodes"), before, held_by(node, annotations=left)
    )
    assert (sentence in answer) if sentence else not answer


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"capacity": {"cpu": "8", "aliyun.com/gpu-count": "4"}}, True),
        ({"allocatable": {"aliyun.com/gpu-count": "4"}}, True),
        ({"capacity": {"cpu": "9999"}}, False),
        ({"capacity": {"cpu": "8", "aliyun.com/gpu-mem": "9999"}}, False),
        ({"capacity": {}}, False),
        ({"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}, False),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, False),
        ({"volumesAttached": [{"name": "v"}]}, False),
    ],
)
def test_of_its_nodes_status_the_plugin_changes_the_number_of_gpus_alone(
    rendered: Rendered, status: Object, *, allowed: bool
) -> None:
    """A stolen token can neither move the node's address nor invent resources."""
    old: Object = {
        "capacity": {"cpu": "8"},
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    }
    before: Object = {"metadata": {"name": "n1"}, "spec": {}, "status": old}
    admission_request = request(SELF, node="n1", resource="nodes")
    answer = Policy(rendered, "-device-plugin").refuses(
        admission_request, before, before | {"status": old | status}
    )
    assert not answer if allowed else "only aliyun.com/gpu-count" in answer


@pytest.mark.parametrize("left", ["capacity", "addresses"])
def test_the_plugin_removes_no_field_of_its_nodes_status(rendered: Rendered, left: str) -> None:
    """A node without addresses is not reached, and one without capacity runs nothing."""
    status: Object = {"capacity": {"cpu": "8"}, "addresses": [{"address": "192.0.2.1"}]}
    before: Object = {"metadata": {"name": "n1"}, "spec": {}, "status": status}
    after = before | {"status": {left: status[left]}}
    policy = Policy(rendered, "-device-plugin")
    answer = policy.refuses(request(SELF, node="n1", resource="nodes"), before, after)
    assert "only aliyun.com/gpu-count" in answer


def test_the_plugins_own_correction_passes_its_policy(rendered: Rendered) -> None:
    """Every annotation that the plugin writes on a pod that no scheduler placed is allowed."""
    tables = {each: device_table(INVENTORY, each) for each in Resource}
    held = Held("default", "p", {"c": {Resource.MEM: tables[Resource.MEM].ids[GpuIndex(0)][:2]}})
    asking = pod_of_two_units()
    given = CorrectionInput(INVENTORY, tables, names.DEFAULT_NAMES, 1)
    (found,) = corrections([held], [asking], given)
    written = {key: text for key, text in found.annotations.items() if text is not None}
    assert names.UNIT in written
    admission_request = request(SELF, node="n1")
    assert (
        Policy(rendered, "-device-plugin").refuses(admission_request, pod(), pod(**written)) == ""
    )


@pytest.mark.slow
def test_the_plugin_publishes_its_own_node_alone(rendered: Rendered) -> None:
    """The inventory and the number of GPUs, but neither taints, labels nor another node."""
    policy = Policy(rendered, "-device-plugin")
    before = {"metadata": {"name": "n1"}, "spec": {}}
    after = {"metadata": {"name": "n1", "annotations": {"gpushare/inventory": "{}"}}, "spec": {}}
    notified = labelled(after, INVENTORY_HASH)
    wrong = labelled(after, "gpushare")
    tainted = {**after, "spec": {"taints": [{"key": "x"}]}}
    admission_request = request(SELF, node="n1", resource="nodes")
    for old, new in [
        (before, after),
        (before, notified),
        (notified, labelled(notified, INVENTORY_HASH, "2")),
    ]:
        assert policy.refuses(admission_request, old, new) == ""
    for old, new in [(before, tainted), (before, wrong), (wrong, after), (notified, wrong)]:
        assert "changes annotations" in policy.refuses(admission_request, old, new)
    other = request(SELF, node="n2", resource="nodes")
    assert "its own node" in policy.refuses(other, before, after)
