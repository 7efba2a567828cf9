"""What is known of a cluster of which only a part may be read."""

import pytest

from gpuinspect.cluster.scoped import is_partial
from gpuinspect.cluster.snapshots import Snapshot


@pytest.mark.parametrize(
    ("missing", "partial"),
    [
        ((), False),
        (("Node",), True),
        (("Pod",), True),
        (("Node", "Pod"), True),
        (("ResourceQuota", "ConfigMap"), False),
    ],
)
def test_a_cluster_without_all_nodes_and_pods_is_known_in_part(
    missing: tuple[str, ...], partial: bool
) -> None:
    """The pods of other namespaces hold GPUs too; without them nothing can be decided."""
    snapshot = Snapshot(nodes=(), pods=(), missing=dict.fromkeys(missing, "forbidden"))
    assert is_partial(snapshot) is partial
