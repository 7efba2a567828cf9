"""Exclusive GPUs and gangs through filter, prioritize and bind, as a scheduler would ask."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from objects import node, pod
from pydantic import ValidationError
from running import Running, until

from gpucore.testing.machines import DGX1_VOLTA
from gpuextender.settings import ExtenderSettings
from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

PREFIXES = ("/gpushare-scheduler", "/gputopology-scheduler", "/gpu-scheduler-extender")
GROUP = "ALIYUN_COM_GPU_GROUP"
Object = dict[str, Any]


def volta(name: str, **annotations: str) -> Object:
    """A DGX-1 with V100 and our plugin."""
    item = node(name, *[16] * 8, unit="GiB")
    item["status"]["capacity"]["aliyun.com/gpu"] = "8"
    inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
    links = DGX1_VOLTA.matrix.links
    inventory["links"] = {f"{a}-{b}": list(names) for (a, b), names in links.items()}
    item["metadata"]["annotations"] |= {"gpushare/inventory": json.dumps(inventory)} | annotations
    return item


def member(name: str, size: int, gpus: int) -> Object:
    """A pod of the gang ``train``."""
    labels = {"gpu-topology": "train", "gpu-topology-replica": str(size)}
    return pod(name, gpus=gpus, labels=labels)


async def gang(cluster: FakeApiServer, extender: Running, size: int, gpus: int) -> list[Object]:
    """The pods of one gang, which the watch has brought."""
    items = [member(f"m{number}", size, gpus) for number in range(size)]
    for number, item in enumerate(items):
        await cluster.put("pods", item)
        name = f"m{number}"
        await until("the pod is known", lambda name=name: extender.state.find("default", name))
    return items


async def nodes(cluster: FakeApiServer, extender: Running, *items: Object) -> None:
    """Put nodes in and wait until they are known."""
    for item in items:
        await cluster.put("nodes", item)
        await extender.knows_node(item["metadata"]["name"])


async def ask(extender: Running, prefix: str, verb: str, item: Object, *names: str) -> Any:
    """One question of a scheduler."""
    body = {"Pod": item, "Nodes": None, "NodeNames": list(names)}
    code, answer = await extender.post(f"{prefix}/{verb}", body)
    assert code == 200
    return answer


async def schedule(
    cluster: FakeApiServer, extender: Running, item: Object, *names: str
) -> tuple[str, str]:
    """A pod through all verbs; answers node and group, or ``("", why not)``."""
    item = await cluster.put("pods", item)
    found = await ask(extender, PREFIXES[0], "filter", item, *names)
    if not found["NodeNames"]:
        return "", next(iter(found["FailedNodes"].values()))
    marks = await ask(extender, PREFIXES[0], "prioritize", item, *found["NodeNames"])
    best = max(marks, key=lambda mark: mark["Score"])["Host"]
    assert await extender.bind(item, best) == (200, "")
    return best, cluster.bindings[-1]["metadata"]["annotations"][GROUP]


def kept(extender: Running) -> int:
    """Places that are reserved for pods to come."""
    allocations = extender.state.ledger.allocations().values()
    return sum(allocation.state == "reserved" for allocation in allocations)


@pytest.mark.parametrize(
    ("gpus", "groups"),
    [
        (2, ["0,3", "1,2", "4,7", "5,6"]),
        (4, ["0,1,2,3", "4,5,6,7"]),
        (8, ["0,1,2,3,4,5,6,7"]),
    ],
)
async def test_a_volta_is_filled_group_by_group_and_then_refuses(
    cluster: FakeApiServer, extender: Running, gpus: int, groups: Sequence[str]
) -> None:
    """NVIDIA's sequences over HTTP; the refusal of the pod that comes too late has the figures."""
    await nodes(cluster, extender, volta("n"))
    for number, group in enumerate(groups):
        found = await schedule(cluster, extender, pod(f"p{number}", gpus=gpus), "n")
        assert found == ("n", group)
    where, why = await schedule(cluster, extender, pod("late", gpus=gpus), "n")
    assert where == ""
    assert f"requested {gpus}, 0 of 8 GPUs are free" in why


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_every_prefix_answers_for_exclusive_gpus(
    cluster: FakeApiServer, extender: Running, prefix: str
) -> None:
    """Filter, sort and prioritize work under the topology extender's names too."""
    await nodes(cluster, extender, volta("linked"), node("plain", 16))
    item = pod("p", gpus=2)
    found = await ask(extender, prefix, "filter", item, "linked", "plain")
    assert found["NodeNames"] == ["linked"]
    assert set(found["FailedNodes"]) == {"plain"}
    for verb in ("sort", "prioritize"):
        marks = await ask(extender, prefix, verb, item, "linked", "plain")
        assert marks == [{"Host": "linked", "Score": 7}, {"Host": "plain", "Score": 0}]


async def test_whole_gpus_and_shares_keep_out_of_each_others_way(
    cluster: FakeApiServer, extender: Running
) -> None:
    """One ledger: a GPU with a share is in no group, a GPU of a group takes no share."""
    await nodes(cluster, extender, volta("n"))
    share = await cluster.put("pods", pod("share", 4))
    assert await extender.bind(share, "n") == (200, "")
    assert await schedule(cluster, extender, pod("q", gpus=4), "n") == ("n", "4,5,6,7")
    assert await schedule(cluster, extender, pod("r", gpus=3), "n") == ("n", "1,2,3")
    where, why = await schedule(cluster, extender, pod("s", gpus=1), "n")
    assert where == ""
    assert "0 of 8 GPUs are free" in why


async def test_the_setting_chooses_and_a_pod_overrules_it(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Static sets from the operator's file, in the order they are written; the pod's own first."""
    config = tmp_path / "sets.json"
    config.write_text('{"ring": {"2": [[5, 1]]}}')
    settings = {"topology_policy": "static", "topology_config": config}
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        await nodes(cluster, extender, volta("n", NODE_TYPE="ring"))
        question = {"pods": [{"name": "w", "gpus": 2}]}
        _, answer = await extender.post("/api/v1/whatif", question)
        assert "5, 1" in answer["items"][0]["text"]
        best = {"gpushare/topology": "best-effort"}
        first = await schedule(cluster, extender, pod("a", gpus=2, annotations=best), "n")
        assert first == ("n", "0,3")
        assert await schedule(cluster, extender, pod("b", gpus=2), "n") == ("n", "5,1")
        assert await schedule(cluster, extender, pod("c", gpus=2), "n") == ("n", "4,7")
        odd = pod("d", gpus=2, annotations={"gpushare/topology": "warp"})
        where, why = await schedule(cluster, extender, odd, "n")
        assert where == ""
        assert "its topology policy 'warp' is unknown" in why


@pytest.mark.parametrize("text", [None, "{", '{"a": {"2": [[1]]}}'])
def test_a_file_of_sets_that_cannot_be_read_stops_the_start(
    tmp_path: Path, text: str | None
) -> None:
    """The error names the setting; the command then ends with 2."""
    config = tmp_path / "sets.json"
    if text is not None:
        config.write_text(text)
    with pytest.raises(ValidationError, match="topology-config: "):
        ExtenderSettings(topology_config=config)


async def test_a_gang_lands_on_one_node_and_nobody_gets_between(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """While one member is placed the other's GPUs are kept from everyone else.

    Without nominations, which would keep a place on the other node for the stranger.
    """
    await nodes(cluster, requeue_only, volta("a"), volta("b"))
    pods = await gang(cluster, requeue_only, 2, 4)
    first = await schedule(cluster, requeue_only, pods[0], "a", "b")
    where = first[0]
    other = "b" if where == "a" else "a"
    stranger = await schedule(cluster, requeue_only, pod("s", gpus=4), where)
    assert stranger[0] == ""
    second = await schedule(cluster, requeue_only, pods[1], "a", "b")
    assert {first, second} == {(where, "0,1,2,3"), (where, "4,5,6,7")}
    assert kept(requeue_only) == 0
    assert await schedule(cluster, requeue_only, pod("t", gpus=8), where, other) == (
        other,
        "0,1,2,3,4,5,6,7",
    )


async def test_a_gang_that_does_not_fit_places_no_pod_and_reports_it(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The sentence has the figures, is final for preemption, and nothing stays reserved."""
    await nodes(cluster, extender, volta("a"))
    item, *_ = await gang(cluster, extender, 3, 3)
    found = await ask(extender, PREFIXES[0], "filter", item, "a")
    sentence = "gang train needs 3 x 3 GPUs: capacity for 2 members on 1 node"
    assert found["NodeNames"] == []
    assert found["FailedNodes"] == {"a": sentence}
    assert found["FailedAndUnresolvableNodes"] == {"a": sentence}
    code, error = await extender.bind(item, "a")
    words = "The node a can't place the pod m0 in ns default,and the pod spec is 3 GPUs"
    assert (code, error) == (500, f"{words}: {sentence}")
    assert await ask(extender, PREFIXES[0], "sort", item, "a") == [{"Host": "a", "Score": 0}]
    victims = {"Pod": item, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "x"}]}}}
    _, answer = await extender.post("/gpushare-scheduler/preempt", victims)
    assert answer["NodeNameToMetaVictims"] == {}
    await until("the pod is known", lambda: extender.state.find("default", "m0"))
    _, text = await extender.get("/api/v1/pods/default/m0/explain")
    assert json.loads(text)["text"] == (
        "1 of 1 nodes with GPUs can take it, but only with all 3 pods of gang train"
    )
    assert not extender.state.ledger.allocations()


async def test_a_bind_alone_places_a_gang_too(cluster: FakeApiServer, extender: Running) -> None:
    """A scheduler of 2019 calls no filter: the bind finds places for all, or refuses."""
    await nodes(cluster, extender, volta("a"))
    pods = await gang(cluster, extender, 2, 4)
    assert await extender.bind(pods[0], "a") == (200, "")
    assert kept(extender) == 1
    assert await extender.bind(pods[1], "a") == (200, "")
    groups = {one["metadata"]["annotations"][GROUP] for one in cluster.bindings}
    assert groups == {"0,1,2,3", "4,5,6,7"}


async def test_a_gang_passes_only_to_its_places(cluster: FakeApiServer, extender: Running) -> None:
    """Other nodes say where the gang has its places; they get no marks."""
    await nodes(cluster, extender, volta("a"), volta("b"))
    item, _ = await gang(cluster, extender, 2, 4)
    found = await ask(extender, PREFIXES[0], "filter", item, "a", "b")
    assert found["NodeNames"] == ["a"]
    assert found["FailedNodes"] == {"b": "the gang of pod m0 has reserved places on a"}
    marks = await ask(extender, PREFIXES[1], "sort", item, "a", "b")
    assert marks == [{"Host": "a", "Score": 10}, {"Host": "b", "Score": 0}]
    assert kept(extender) == 2


async def test_places_are_given_back_when_the_pods_are_gone(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A gang that is deleted while it waits keeps nothing."""
    await nodes(cluster, extender, volta("a"))
    item, _ = await gang(cluster, extender, 2, 4)
    await ask(extender, PREFIXES[0], "filter", item, "a")
    assert kept(extender) == 2
    await cluster.delete("pods", "m0", "default")
    await cluster.delete("pods", "m1", "default")
    await until("nothing is kept", lambda: not kept(extender))


async def test_places_expire(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Members that never come cost their GPUs no longer than assume_ttl."""
    async with Running(cluster, tmp_path, bind_deadline=0.1, assume_ttl=0.2) as extender:
        await extender.ready()
        await nodes(cluster, extender, volta("a"))
        item, _ = await gang(cluster, extender, 2, 4)
        found = await ask(extender, PREFIXES[0], "filter", item, "a")
        assert found["NodeNames"] == ["a"]
        await until("nothing is kept", lambda: not kept(extender))


async def test_a_bind_that_failed_keeps_the_place_of_its_pod(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The API server refused: the gang stays whole, and the next try takes the same place."""
    await nodes(cluster, extender, volta("a"))
    item, _ = await gang(cluster, extender, 2, 4)
    await ask(extender, PREFIXES[0], "filter", item, "a")
    cluster.fail_next("bind", lambda _: status(403, "quota"))
    code, _ = await extender.bind(item, "a")
    assert code == 500
    assert kept(extender) == 2
    assert await extender.bind(item, "a") == (200, "")
    assert kept(extender) == 1


async def test_a_restarted_extender_goes_on_with_half_a_gang(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """What the API server shows is enough: the second member joins the first."""
    async with Running(cluster, tmp_path) as before:
        await before.ready()
        await nodes(cluster, before, volta("a"), volta("b"))
        stranger = await schedule(cluster, before, pod("s", gpus=1), "a")
        assert stranger[0] == "a"
        pods = await gang(cluster, before, 2, 4)
        first = await schedule(cluster, before, pods[0], "a", "b")
    async with Running(cluster, tmp_path) as after:
        await after.ready()
        second = await schedule(cluster, after, pods[1], "a", "b")
        assert first[0] == second[0] == "b"
        assert first[1] != second[1]


async def test_members_that_come_at_once_are_placed_at_once(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Eight members bound together over one node get a GPU each, none twice."""
    await nodes(cluster, extender, volta("a"))
    pods = await gang(cluster, extender, 8, 1)
    answers = await asyncio.gather(*(extender.bind(item, "a") for item in pods))
    assert set(answers) == {(200, "")}
    groups = sorted(one["metadata"]["annotations"][GROUP] for one in cluster.bindings)
    assert groups == [str(gpu) for gpu in range(8)]
    assert kept(extender) == 0
