"""`inspect` under the topology extender's prefixes, as `kubectl inspect gpu` of 2019 reads it."""

import json
from pathlib import Path
from typing import Any

import pytest
from decoded import encoded, state_of
from objects import Object, node, pod, whole_node
from running import Running

from gpucore.wire.node.matrices import MAX_GPUS
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import decode_pod
from gpuextender.http.views import TopologyInspector
from gpuextender.settings import ExtenderSettings
from gpukube.testing.apiserver import FakeApiServer

PREFIXES = ("gputopology-scheduler", "gpu-scheduler-extender")
LINKS = {"0-1": ["PIX"], "2-3": ["NV2", "PHB"], "0-2": ["SYS"], "1-3": ["NODE"]}


def linked(name: str) -> Object:
    """A node with four GPUs, whose plugin published their links."""
    gpus = [{"index": i, "minor": i, "uuid": f"G{i}", "model": "V", "units": 16} for i in range(4)]
    inventory = {"version": 1, "unit": "GiB", "gpus": gpus, "links": LINKS}
    item = whole_node(name, 4)
    annotations = {"gpushare/inventory": json.dumps(inventory), "NODE_TYPE": "type-a"}
    item["metadata"]["annotations"] = annotations
    return item


async def seen(extender: Running, path: str) -> Any:
    """The answer, decoded."""
    code, text = await extender.get(path)
    assert code == 200
    return json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_whole_gpus_are_counted_also_on_nodes_without_pods(
    cluster: FakeApiServer, extender: Running, prefix: str
) -> None:
    """`kubectl inspect gpu` prints name, all and used GPUs, those of pods on unknown GPUs too."""
    await cluster.put("nodes", linked("a"))
    await cluster.put("nodes", whole_node("b", 8))
    await cluster.put("nodes", node("share", 16))
    for name in ("a", "b", "share"):
        await extender.knows_node(name)
    item = pod("p", gpus=2, annotations={"ALIYUN_COM_GPU_GROUP": "0,1"})
    item["spec"]["nodeName"] = "a"
    await cluster.put("pods", item)
    await extender.knows_pod(item["metadata"]["uid"])
    nodes = [
        {"name": "a", "totalGPU": 4, "usedGPU": 2},
        {"name": "b", "totalGPU": 8, "usedGPU": 0},
    ]
    answer = await seen(extender, f"/{prefix}/inspect")
    assert answer == {"nodes": nodes, "policy": "best_effort"}
    assert (await seen(extender, f"/{prefix}/inspect/a"))["nodes"] == nodes[:1]
    lost = pod("lost", gpus=3)
    lost["spec"]["nodeName"] = "b"
    await cluster.put("pods", lost)
    await extender.knows_pod(lost["metadata"]["uid"])
    assert (await seen(extender, f"/{prefix}/inspect/b"))["nodes"][0]["usedGPU"] == 3
    missing = await seen(extender, f"/{prefix}/inspect/none")
    assert missing == {"nodes": None, "error": "node none is not known"}


def test_a_gpu_that_the_node_has_lost_is_in_use_and_no_gpu_of_it() -> None:
    """Its pod still names it; the matrix shows the GPUs that there are."""
    state = state_of(decode_node(encoded(linked("n"))))
    item = pod("p", gpus=1, annotations={"ALIYUN_COM_GPU_GROUP": "7"})
    item["spec"]["nodeName"] = "n"
    state.pod_changed(decode_pod(encoded(item)))
    inspector = TopologyInspector(state.ledger, ExtenderSettings().grouping())
    [found] = inspector.one("n", detail=True).nodes or []
    assert (found.total, found.used) == (4, 1)
    assert found.topology is not None
    assert [len(row) for row in found.topology] == [4] * 4


@pytest.mark.parametrize(("gpus", "links"), [(MAX_GPUS, True), (MAX_GPUS + 1, False)])
def test_a_node_of_more_gpus_than_a_machine_has_is_shown_without_links(
    gpus: int, *, links: bool
) -> None:
    """A node may state a thousand, and a million pairs would keep the scheduler waiting."""
    state = state_of(decode_node(encoded(whole_node("n", gpus))))
    inspector = TopologyInspector(state.ledger, ExtenderSettings().grouping())
    [found] = inspector.one("n", detail=True).nodes or []
    assert found.total == gpus
    assert (found.topology is not None) is links


@pytest.mark.slow
async def test_details_have_the_links_as_the_original_numbered_them(
    cluster: FakeApiServer, extender: Running
) -> None:
    """PCIe paths are 1 to 6, NVLinks 7 and up; links of GPUs in use are 0."""
    await cluster.put("nodes", linked("a"))
    await extender.knows_node("a")
    [before] = (await seen(extender, "/gputopology-scheduler/inspect/a?detail=true"))["nodes"]
    assert before == {
        "name": "a",
        "totalGPU": 4,
        "usedGPU": 0,
        "topology": [[0, 2, 6, 0], [2, 0, 0, 5], [6, 0, 0, 8], [0, 5, 8, 0]],
        "type": "type-a",
    }
    item = pod("p", gpus=1, annotations={"ALIYUN_COM_GPU_GROUP": "3"})
    item["spec"]["nodeName"] = "a"
    await cluster.put("pods", item)
    await extender.knows_pod(item["metadata"]["uid"])
    [after] = (await seen(extender, "/gputopology-scheduler/inspect?detail=true"))["nodes"]
    assert after["topology"] == [[0, 2, 6, 0], [2, 0, 0, 0], [6, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.slow
async def test_details_have_the_configured_sets_of_the_node_type(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """With the static policy, the sets that the operator configured for this type of node."""
    config = tmp_path / "sets.json"
    config.write_text(json.dumps({"type-a": {"2": [[0, 1], [2, 3]]}}))
    settings = {"topology_policy": "static", "topology_config": config}
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        await cluster.put("nodes", linked("a"))
        await extender.knows_node("a")
        answer = await seen(extender, "/gputopology-scheduler/inspect?detail=true")
    assert answer["policy"] == "static"
    assert answer["nodes"][0]["staticConfig"] == {"2": [[0, 1], [2, 3]]}


def test_the_original_spelling_of_the_policy_is_accepted() -> None:
    """The topology extender of 2019 was started with `-policy best_effort`."""
    assert ExtenderSettings(topology_policy="best_effort").topology_policy == "best-effort"  # type: ignore[arg-type]


@pytest.mark.slow
async def test_profiles_of_go_are_answered_with_where_to_look(extender: Running) -> None:
    """The original served pprof; a tool that requests it gets a sentence."""
    for path in ("", "heap", "goroutine"):
        code, text = await extender.get(f"/debug/pprof/{path}")
        assert (code, "/metrics" in text) == (404, True)
