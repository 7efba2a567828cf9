"""Nodes that do not exist yet: an autoscaler sends full objects, and nothing of them is kept."""

import json
from typing import Any

import pytest
from objects import node, pod
from running import Running

from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

Object = dict[str, Any]


async def filtered(extender: Running, asking: Object, *nodes: Object) -> Object:
    """The reply to full nodes."""
    body = {"Pod": asking, "Nodes": {"items": list(nodes)}, "NodeNames": None}
    status, reply = await extender.post("/gpushare-scheduler/filter", body)
    assert status == 200
    return dict(reply)


async def test_a_template_node_is_judged_by_its_inventory(extender: Running) -> None:
    """Two GPUs of 8 take a share of 8 and none of 9, although the node has 16 in all."""
    template = node("template", 8, 8, unit="GiB")
    assert (await filtered(extender, pod("a", 8), template))["NodeNames"] == ["template"]
    reply = await filtered(extender, pod("b", 9), template)
    assert reply["NodeNames"] == []
    assert "GiB" in reply["FailedNodes"]["template"]


async def test_a_template_has_all_units_of_its_gpus(extender: Running) -> None:
    """An autoscaler copies a node of the group, of which pods of an earlier plugin hold devices."""
    template = node("template", 8, 8, unit="GiB")
    text = template["metadata"]["annotations"]["gpushare/inventory"]
    inventory = json.loads(text)
    for gpu in inventory["gpus"]:
        gpu["withheld"] = 4
    template["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(inventory)
    assert (await filtered(extender, pod("a", 8), template))["NodeNames"] == ["template"]


async def test_nothing_of_a_template_is_kept(extender: Running) -> None:
    """By name it is as unknown as before, and no decision reserves anything on it."""
    template = node("template", 8, unit="GiB")
    await filtered(extender, pod("a", 8), template)
    assert (await filtered(extender, pod("b", 8), template))["NodeNames"] == ["template"]
    assert (await extender.filter(pod("c", 1), "template"))["NodeNames"] == []
    assert extender.state.ledger.node("template") is None


async def test_a_node_without_inventory_stays_unknown(extender: Running) -> None:
    """The units of its single GPUs are not known."""
    reply = await filtered(extender, pod("a", 1), node("plain", 8))
    assert reply["FailedAndUnresolvableNodes"].keys() == {"plain"}


async def test_a_known_node_counts_as_it_is(cluster: FakeApiServer, extender: Running) -> None:
    """A full object cannot make a node larger than the API server shows it."""
    await cluster.put("nodes", node("n", 4, unit="GiB"))
    await extender.knows_node("n")
    reply = await filtered(extender, pod("a", 8), node("n", 8, unit="GiB"))
    assert reply["NodeNames"] == []


async def test_template_nodes_are_scored(extender: Running) -> None:
    """The fuller the node is afterwards the better, as for nodes that exist."""
    nodes = [node("small", 8, unit="GiB"), node("large", 80, unit="GiB"), node("plain", 8)]
    body = {"Pod": pod("a", 8), "Nodes": {"items": nodes}, "NodeNames": None}
    _, scores = await extender.post("/gpushare-scheduler/prioritize", body)
    found = {each["Host"]: each["Score"] for each in scores}
    assert found["small"] > found["large"] >= found["plain"] == 0
