"""A nomination never hides a pod from an autoscaler that should add a node for it.

The cluster autoscaler takes a pod with ``nominatedNodeName`` for one that gets its place soon, and
adds no node for it. So only a pod that fits at this moment may have one.
"""

import pytest
from objects import placed, pod
from running import Running, until
from test_nominator import backlog, eager, known, nodes, nominated, patches, pending, quick, ready

from gpukube.testing.apiserver import FakeApiServer

__all__ = ["eager", "quick"]  # fixtures

pytestmark = pytest.mark.slow


async def test_a_pod_that_fits_no_gpu_is_not_nominated(
    cluster: FakeApiServer, eager: Running
) -> None:
    """Both nodes have its memory in sum, as the scheduler and the autoscaler count."""
    await nodes(cluster, eager, ready("a", 8, 8), ready("b", 8, 8))
    large, small = pending("large", 12), pending("small", 2)
    await backlog(cluster, eager, large, small)
    assert (await eager.filter(large, "a", "b"))["NodeNames"] == []
    await until("the small pod is nominated", lambda: nominated(cluster, "small"))
    assert (nominated(cluster, "large"), patches(cluster, "large")) == ("", 0)


async def test_a_node_that_is_added_for_a_pod_gets_it(
    cluster: FakeApiServer, eager: Running
) -> None:
    """The refused pod is nominated to the new node and retried at once."""
    await nodes(cluster, eager, ready("a", 8, 8))
    large = pending("large", 12)
    await known(cluster, eager, large)
    assert (await eager.filter(large, "a"))["NodeNames"] == []
    await nodes(cluster, eager, ready("new", 16))
    await until("it may be retried", lambda: _retried(cluster))


async def test_a_pod_whose_place_is_taken_is_an_autoscalers_matter_again(
    cluster: FakeApiServer, eager: Running
) -> None:
    """The nomination is cleared, not kept in the hope of another place."""
    await nodes(cluster, eager, ready("a", 16))
    item = pending("p", 16)
    await backlog(cluster, eager, item)
    await until("it is nominated", lambda: nominated(cluster, "p"))
    await cluster.put("pods", placed(pod("intruder", 9, uid="intruder"), "a", 0))
    await eager.knows_pod("intruder")
    await eager.filter(pending("x", 1), "a")
    await until("it is cleared", lambda: not nominated(cluster, "p"))


def _retried(cluster: FakeApiServer) -> bool:
    """The scheduler was made to try the pod again, with or without a nomination."""
    return "gpushare/retry" in cluster.find("pods", "large", "default")["metadata"]["annotations"]
