"""Several GPUs for one pod: those that are well linked, over HTTP to the Binding."""

import json
from typing import Any

import pytest
from objects import node, pod
from running import Running, until

from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

GROUP = "ALIYUN_COM_GPU_GROUP"


def linked(name: str, *pairs: str, gpus: int = 4, kind: str = "NV2") -> dict[str, Any]:
    """A node of exclusive GPUs and shares; ``pairs`` are joined by ``kind``, all others by SYS."""
    item = node(name, *(16 for _ in range(gpus)), unit="GiB")
    item["status"]["capacity"]["aliyun.com/gpu"] = str(gpus)
    inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
    others = [f"{a}-{b}" for a in range(gpus) for b in range(a + 1, gpus)]
    inventory["links"] = {pair: [kind if pair in pairs else "SYS"] for pair in others}
    item["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(inventory)
    return item


async def annotations(cluster: FakeApiServer, extender: Running, item: Any) -> dict[str, str]:
    """Bind a pod to node ``n``; answers its annotations."""
    item = await cluster.put("pods", item)
    assert await extender.bind(item, "n") == (200, "")
    written: dict[str, str] = cluster.bindings[-1]["metadata"]["annotations"]
    return written


async def test_whole_gpus_are_the_best_linked_free_ones(
    cluster: FakeApiServer, extender: Running
) -> None:
    """GPUs 1 and 3 share NVLinks: two GPUs are those, two more are what is left."""
    await cluster.put("nodes", linked("n", "1-3"))
    await extender.knows_node("n")
    assert (await annotations(cluster, extender, pod("a", gpus=2)))[GROUP] == "1,3"
    assert (await annotations(cluster, extender, pod("b", gpus=2)))[GROUP] == "0,2"


async def test_a_share_over_two_gpus_takes_linked_ones(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The gpu-count label spreads a share over GPUs that are well joined."""
    await cluster.put("nodes", linked("n", "1-2"))
    await extender.knows_node("n")
    item = pod("a", 8, labels={"aliyun.com/gpu-count": "2"})
    written = await annotations(cluster, extender, item)
    allocation = json.loads(written["scheduler.framework.gpushare.allocation"])
    assert allocation == {"0": {"1": 4, "2": 4}}


async def test_a_share_of_one_gpu_stays_with_its_policy(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Links do not matter to a pod on one GPU: the fullest that fits, the first of equals."""
    await cluster.put("nodes", linked("n", "2-3"))
    await extender.knows_node("n")
    gpus = [(await annotations(cluster, extender, pod(name, 8))) for name in "abc"]
    assert [one["ALIYUN_COM_GPU_MEM_IDX"] for one in gpus] == ["0", "0", "1"]


async def test_the_node_with_the_better_group_scores_higher(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Prioritize compares best groups, and notices when links change."""
    await cluster.put("nodes", linked("good", "0-1", kind="NV4"))
    await cluster.put("nodes", linked("poor", "0-1", kind="PIX"))
    await extender.knows_node("good")
    await extender.knows_node("poor")
    body = {"Pod": pod("p", gpus=2), "NodeNames": ["good", "poor", "ghost"]}

    async def scores() -> dict[str, int]:
        _, answer = await extender.post("/gputopology-scheduler/sort", body)
        return {one["Host"]: one["Score"] for one in answer}

    before = await scores()
    assert before["good"] > before["poor"] > 0
    assert before["ghost"] == 0
    await cluster.put("nodes", linked("poor", "0-1", kind="NV6"))
    await until(
        "the links are known",
        lambda: extender.state.ledger.node("poor").shape.inventory.links["0-1"] == ("NV6",),
    )
    after = await scores()
    assert after["poor"] >= after["good"]


@pytest.mark.parametrize("text", ["", "{", '{"GPU_NV2_9_9": "x"}'])
async def test_a_node_without_links_gives_its_lowest_gpus(
    cluster: FakeApiServer, extender: Running, text: str
) -> None:
    """No links, or a broken annotation of 2019: as the original did."""
    item = node("n", 16, 16, 16)
    item["status"]["capacity"]["aliyun.com/gpu"] = "3"
    item["metadata"]["annotations"]["GPU_TOPOLOGY"] = text
    await cluster.put("nodes", item)
    await extender.knows_node("n")
    assert (await annotations(cluster, extender, pod("a", gpus=2)))[GROUP] == "0,1"
