"""Who nominates after a restart or a change of the leader, and whose nominations it may change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nominating import known, nodes, nominated, patches, pending, ready
from objects import Object
from running import Running, until

from gpuextender.nomination import due_pods, rounds
from gpuextender.nomination.rounds import Leadership, NominationRounds
from gpuextender.nomination.writes import MANAGER
from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that called once has called lately until the test ends."""
    monkeypatch.setattr(due_pods, "CALLED_SECONDS", 600.0)
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(rounds, "FRESH_SECONDS", 0.01)


@asynccontextmanager
async def replica(cluster: FakeApiServer, folder: Path, name: str) -> AsyncIterator[Running]:
    """An extender that nominates every pending pod."""
    (folder / name).mkdir()
    async with Running(cluster, folder / name, nominate="backlog", nominate_after=0) as running:
        await running.ready()
        yield running


def by(manager: str, item: Object, name: str) -> Object:
    """The pod once somebody nominated it."""
    item["status"]["nominatedNodeName"] = name
    fields = {"f:status": {"f:nominatedNodeName": {}}}
    item["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}]
    return item


async def call(extender: Running) -> None:
    """The scheduler calls."""
    await extender.filter(pending("caller", 1), "unknown")


async def test_after_a_restart_own_nominations_are_reserved_again(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The pod passes on its node, nobody else does, and nothing is written."""
    async with replica(cluster, tmp_path, "first") as first:
        await nodes(cluster, first, ready("a", 16), ready("b", 16))
        item = pending("p", 16)
        await known(cluster, first, item)
        await call(first)
        await until("p is nominated", lambda: nominated(cluster, "p"))
    name, before = nominated(cluster, "p"), patches(cluster, "p")
    async with replica(cluster, tmp_path, "second") as second:
        await call(second)
        await until("it is reserved", second.state.ledger.nominations)
        assert (await second.filter(item, "a", "b"))["NodeNames"] == [name]
        (other,) = {"a", "b"} - {name}
        rival = pending("rival", 16)
        assert (await second.filter(rival, "a", "b"))["NodeNames"] == [other]
        assert patches(cluster, "p") == before
        assert await second.bind(item, name) == (200, "")


async def test_own_nominations_that_no_longer_fit_are_cleared_after_a_restart(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """And the pod is nominated to another node."""
    await cluster.put("pods", by(MANAGER, pending("p", 16), "gone"))
    async with replica(cluster, tmp_path, "second") as second:
        await nodes(cluster, second, ready("a", 16))
        await call(second)
        await until("it is nominated anew", lambda: nominated(cluster, "p") == "a")


async def test_a_pod_whose_nomination_was_cleared_is_nominated_once_the_watch_shows_it(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch may be late; no call of the scheduler and no change of a node is needed."""
    rounds_seen = 0
    real_round = NominationRounds.round

    async def counted(self: NominationRounds) -> float:
        nonlocal rounds_seen
        rounds_seen += 1
        return await real_round(self)

    monkeypatch.setattr(NominationRounds, "round", counted)
    await cluster.put("pods", by(MANAGER, pending("p", 16), "gone"))
    async with replica(cluster, tmp_path, "second") as second:
        await nodes(cluster, second, ready("a", 16))
        async with cluster.silent_watches():
            await call(second)
            await until("it is cleared", lambda: not nominated(cluster, "p"))
            before = rounds_seen
            await until("rounds see the old pod", lambda: rounds_seen > before + 3)
        await until("it is nominated anew", lambda: nominated(cluster, "p") == "a")


@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_a_nomination_that_could_not_be_cleared_is_cleared_later(
    cluster: FakeApiServer, tmp_path: Path, verb: str
) -> None:
    """Nothing reserves memory for a nomination for ever because one request failed."""
    await cluster.put("pods", by(MANAGER, pending("p", 16), "gone"))
    async with replica(cluster, tmp_path, "second") as second:
        await nodes(cluster, second, ready("a", 16))
        if verb == "get":
            cluster.fail_next(verb, lambda _: None)  # the one that finds whose nomination it is
        cluster.fail_next(verb, lambda _: status(500, "injected"))
        await call(second)
        await until("it is nominated anew", lambda: nominated(cluster, "p") == "a")


async def test_a_nomination_of_the_scheduler_is_never_changed_after_a_restart(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """It evicts pods there. Room for the pod is kept, whether or not the node has it already."""
    await cluster.put("pods", by("kube-scheduler", pending("p", 16), "a"))
    await cluster.put("pods", by("kube-scheduler", pending("q", 16), "full"))
    async with replica(cluster, tmp_path, "second") as second:
        await nodes(cluster, second, ready("a", 16), ready("full", 8), ready("b", 16))
        await known(cluster, second, pending("r", 16))
        await call(second)
        await until("r is nominated", lambda: nominated(cluster, "r"))
        assert (nominated(cluster, "p"), nominated(cluster, "q")) == ("a", "full")
        assert (patches(cluster, "p"), patches(cluster, "q")) == (0, 0)
        assert nominated(cluster, "r") == "b"


async def test_a_preemption_that_comes_between_is_not_overwritten(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler wrote after the watch last reported the pod: the API server answers 409."""
    async with replica(cluster, tmp_path, "first") as extender:
        await nodes(cluster, extender, ready("a", 16), ready("b", 16))
        await known(cluster, extender, pending("p", 16))
        held: list[object] = []
        monkeypatch.setattr(extender.state, "pod_changed", held.append)  # the watch is behind
        stored = cluster.find("pods", "p", "default")
        await cluster.put("pods", by("kube-scheduler", stored, "z"))
        await until("the watch has brought it", lambda: held)
        await call(extender)
        await until("the patch is refused", lambda: patches(cluster, "p"))
        await until("nothing is held", lambda: not extender.state.ledger.nominations())
        assert nominated(cluster, "p") == "z"


async def test_exactly_one_of_two_replicas_nominates(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hear calls here; a new leader goes on with what the last one reserved."""
    leader: list[object] = []

    async def leads(self: Leadership) -> bool:
        return self in leader

    monkeypatch.setattr(Leadership, "leads", leads)
    async with (
        replica(cluster, tmp_path, "one") as one,
        replica(cluster, tmp_path, "two") as two,
    ):
        leader.append(one.service._rounds._leadership)
        await nodes(cluster, one, *(ready(name, 16) for name in "abc"))
        for name in "abc":
            await two.knows_node(name)
        await known(cluster, one, pending("p", 16))
        for extender in (one, two):
            await call(extender)
        await until("p is nominated", lambda: nominated(cluster, "p"))
        assert not two.state.ledger.nominations()
        leader[:] = [two.service._rounds._leadership]
        await known(cluster, two, pending("q", 16))
        for extender in (one, two):
            await call(extender)
        await until("q is nominated", lambda: nominated(cluster, "q"))
        await until("one has resigned", lambda: not one.state.ledger.nominations())
        await until("two holds both", lambda: len(two.state.ledger.nominations()) == 2)
        assert nominated(cluster, "p") != nominated(cluster, "q")
        assert (patches(cluster, "p"), patches(cluster, "q")) == (1, 1)
