"""The pods of a gang are nominated together, all that need a place or none."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nominating import known, nodes, nominated, patches, pending, ready
from objects import Object
from running import Running, until

from gpucore.model import AllocationState
from gpuextender.nomination import due_pods, rounds
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that called once leads until the test ends."""
    monkeypatch.setattr(due_pods, "CALLED_SECONDS", 600.0)
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(due_pods, "AGAIN_SECONDS", 0.05)


@pytest.fixture
async def eager(cluster: FakeApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """An extender that nominates every pending pod."""
    async with Running(cluster, tmp_path, nominate="backlog", nominate_after=0) as running:
        await running.ready()
        yield running


def member(name: str, size: int = 2, mem: int = 16, **more: object) -> Object:
    """A pending pod of the gang ``g``."""
    labels = {"gpu-topology": "g", "gpu-topology-replica": str(size)}
    return pending(name, mem, labels=labels, **more)


async def call(extender: Running) -> None:
    """The scheduler calls for a pod that requests little and is not on the API server."""
    await extender.filter(pending("caller", 1), "unknown")


def places(cluster: FakeApiServer, *names: str) -> list[str]:
    """The nodes that the API server shows for these pods."""
    return [nominated(cluster, name) for name in names]


async def test_all_pods_of_a_gang_are_nominated_in_one_step(
    cluster: FakeApiServer, eager: Running
) -> None:
    """Each to a node of its own where one node has no memory for two; then all can be bound."""
    await nodes(cluster, eager, *(ready(name, 16) for name in "abc"))
    items = [member("g0"), member("g1")]
    await known(cluster, eager, *items)
    await call(eager)
    await until("both are nominated", lambda: all(places(cluster, "g0", "g1")))
    found = places(cluster, "g0", "g1")
    assert len(set(found)) == 2
    for item, name in zip(items, found, strict=True):
        assert (await eager.filter(item, "a", "b", "c"))["NodeNames"] == [name]
        assert await eager.bind(item, name) == (200, "")
    states = {one.state for one in eager.state.ledger.gang("default", "g")}
    assert AllocationState.RESERVED not in states
    assert not eager.state.ledger.nominations()


@pytest.mark.parametrize("short", ["memory", "pods", "a member"])
async def test_a_gang_that_does_not_fit_as_a_whole_gets_nothing(
    cluster: FakeApiServer, eager: Running, short: str
) -> None:
    """For lack of GPU memory, by kube-scheduler's own rules, or because a pod is missing."""
    second = ready("b", 8 if short == "memory" else 16)
    if short == "pods":
        second["status"]["allocatable"]["pods"] = "0"
    await nodes(cluster, eager, ready("a", 16), second)
    await known(cluster, eager, member("g0"), *([] if short == "a member" else [member("g1")]))
    await known(cluster, eager, pending("single", 4))
    await call(eager)
    await until("the single is nominated", lambda: nominated(cluster, "single"))
    assert not any(places(cluster, "g0"))
    assert not eager.state.ledger.gang("default", "g")


async def test_a_refused_gang_is_nominated_where_the_sample_had_no_room(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Its scheduler offered one node for two pods that need two; the other one is known here."""
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await nodes(cluster, extender, ready("a", 16), ready("b", 16), ready("small", 8))
        items = [member("g0"), member("g1")]
        await known(cluster, extender, *items)
        assert (await extender.filter(items[0], "a", "small"))["NodeNames"] == []
        await until("both are nominated", lambda: all(places(cluster, "g0", "g1")))
        assert set(places(cluster, "g0", "g1")) == {"a", "b"}


@pytest.mark.parametrize("end", ["deleted", "cleared", "rejected"])
async def test_when_one_pod_loses_its_place_the_others_are_released(
    cluster: FakeApiServer, eager: Running, end: str
) -> None:
    """Half a gang keeps no GPUs; what is written is cleared."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16), ready("c", 4))
    items = [member("g0"), member("g1")]
    await known(cluster, eager, *items)
    await call(eager)
    await until("both are nominated", lambda: all(places(cluster, "g0", "g1")))
    for name in ("g0", "g1"):
        await until("it is known", lambda n=name: eager.state.find("default", n).pod.nominated)
    if end == "deleted":
        await cluster.delete("pods", "g0", "default")
    elif end == "rejected":
        await eager.filter(items[0], "c")
    else:
        stored = cluster.find("pods", "g0", "default")
        await cluster.put("pods", stored | {"status": {"phase": "Pending"}})
    await until("the other is cleared", lambda: patches(cluster, "g1") >= 2)
    if end == "deleted":
        await until("nothing is held", lambda: not eager.state.ledger.gang("default", "g"))
        assert places(cluster, "g1") == [""]


async def test_pods_that_replace_a_part_of_a_gang_are_nominated_alone(
    cluster: FakeApiServer, eager: Running
) -> None:
    """The pods that run keep their GPUs; a gang of two with a pod too many nominates one."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16), ready("c", 16))
    items = [member("g0"), member("g1")]
    await known(cluster, eager, *items)
    await call(eager)
    await until("both are nominated", lambda: all(places(cluster, "g0", "g1")))
    for item in items:
        assert (await eager.bind(item, nominated(cluster, item["metadata"]["name"])))[0] == 200
    await cluster.delete("pods", "g0", "default")
    await known(cluster, eager, member("g2"))
    await call(eager)
    await until("g2 is nominated", lambda: nominated(cluster, "g2"))
    assert nominated(cluster, "g2") != nominated(cluster, "g1")


async def test_a_gang_with_a_pod_that_is_left_to_the_scheduler_is_not_nominated(
    cluster: FakeApiServer, eager: Running
) -> None:
    """Its host port is not evaluated here, so that its node may be another one."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16), ready("c", 16))
    odd = member("g1")
    odd["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    await known(cluster, eager, member("g0"), odd, pending("single", 16))
    await call(eager)
    await until("the single is nominated", lambda: nominated(cluster, "single"))
    assert not any(places(cluster, "g0", "g1"))
