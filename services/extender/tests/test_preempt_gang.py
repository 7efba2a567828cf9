"""preempt for pods of a gang: nobody is evicted."""

import pytest
from objects import node, placed, pod
from running import Running

from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

PATH = "/gpushare-scheduler/preempt"
GANG = {"gpu-topology": "train", "gpu-topology-replica": "2"}


@pytest.mark.parametrize(
    ("labels", "evicted"), [(GANG, {}), ({}, {"n": ["a"]})], ids=["gang", "alone"]
)
async def test_a_pod_of_a_gang_evicts_nobody(
    cluster: FakeApiServer, extender: Running, labels: dict[str, str], evicted: dict[str, list[str]]
) -> None:
    """Room for one of its pods does not mean room for the others; the same pod alone evicts."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await extender.knows_node("n")
    await cluster.put("pods", placed(pod("a", 10, uid="a", priority=0), "n", 0))
    await extender.knows_pod("a")
    pending = pod("p", 10, priority=10)
    pending["metadata"]["labels"] = labels
    victims = {"n": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}
    body = {"Pod": pending, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    code, answer = await extender.post(PATH, body)
    assert code == 200
    nodes = answer["NodeNameToMetaVictims"]
    assert {name: [one["UID"] for one in each["Pods"]] for name, each in nodes.items()} == evicted
