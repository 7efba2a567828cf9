"""What the plugin reads from its own Node object."""

import pytest

from gpucore.node.allocation.device_ids import Resource
from gpucore.units import NodeName
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch, resources_of
from gpudeviceplugin.signals import Signal

NODE = Node(NodeName("n1"))


def test_a_deleted_node_is_unknown_from_then_on() -> None:
    """Nothing is published or offered by the old object; waiting tasks are woken."""
    changed = Signal()
    watch = NodeWatch(changed)
    watch.on_replace((NODE,))
    assert watch.node is NODE
    watch.on_delete(NODE)
    assert watch.node is None
    watch.on_update(NODE, b"")
    assert watch.node is NODE
    watch.on_replace(())
    assert watch.node is None
    assert changed.count == 4


@pytest.mark.parametrize(
    ("labels", "resources"),
    [
        ({}, []),
        ({"gpushare": "true"}, [Resource.MEM, Resource.CORE]),
        ({"gputopology": "true"}, [Resource.GPU]),
        ({"gpushare": "true", "gputopology": "true"}, [*Resource]),
        ({"gpushare": "false", "gputopology": "yes"}, []),
    ],
)
def test_labels_choose_the_resources(labels: dict[str, str], resources: list[Resource]) -> None:
    """Shares, exclusive GPUs, both, or nothing."""
    assert list(resources_of(labels)) == resources
