"""Pending pods are nominated to the best of all nodes, and their reservations end with them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nominating import known, nodes, nominated, patches, pending, ready
from objects import Object, placed, pod
from running import Running, until

from gpucore import nomination
from gpucore.units import PodUid
from gpuextender import service
from gpuextender.nomination import due_pods, rounds
from gpuextender.nomination.nominator import Nominator
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that called once leads until the test ends."""
    monkeypatch.setattr(due_pods, "CALLED_SECONDS", 600.0)
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def no_second_nomination(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after a lost nomination outlasts the test, however slow the machine is."""
    monkeypatch.setattr(nomination, "FIRST_SECONDS", 600.0)
    monkeypatch.setattr(nomination, "LONGEST_SECONDS", 600.0)


@pytest.fixture
async def eager(cluster: FakeApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """An extender that nominates every pending pod behind the first two."""
    async with Running(cluster, tmp_path, nominate="backlog", nominate_after=2) as running:
        await running.ready()
        yield running


async def backlog(cluster: FakeApiServer, extender: Running, *items: Object) -> None:
    """Two pods at the head of the queue, these behind them; the scheduler calls."""
    head = [pending(f"head-{number}", 1) for number in range(2)]
    await known(cluster, extender, *head, *items)
    await extender.filter(pending("caller", 1), "unknown")


async def test_pods_behind_the_head_are_nominated_to_the_best_node(
    cluster: FakeApiServer, eager: Running
) -> None:
    """By the policy over all nodes; the head of the queue is left to the scheduler."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16))
    await known(cluster, eager)
    await cluster.put("pods", placed(pod("held", 4), "b", 0))
    await eager.knows_pod(cluster.find("pods", "held", "default")["metadata"]["uid"])
    await backlog(cluster, eager, pending("p", 8), pending("q", 8))
    await until("both are nominated", lambda: nominated(cluster, "p") and nominated(cluster, "q"))
    assert (nominated(cluster, "p"), nominated(cluster, "q")) == ("b", "a")
    assert patches(cluster, "head-1") == 0


async def test_nothing_is_nominated_before_the_scheduler_calls(
    cluster: FakeApiServer, eager: Running
) -> None:
    """Nor for pods of another scheduler, nor for pods that request nothing."""
    await nodes(cluster, eager, ready("a", 16))
    other, plain = pending("other", 1, scheduler="default-scheduler"), pending("plain", 0)
    await known(cluster, eager, *(pending(f"p{number}", 1) for number in range(5)), other)
    await cluster.put("pods", plain)
    assert not eager.state.ledger.nominations()
    await eager.filter(pending("x", 1), "a")
    await until("p4 is nominated", lambda: nominated(cluster, "p4"))
    assert not patches(cluster, "other")
    assert not patches(cluster, "plain")


async def test_filter_answers_the_nominated_node_and_keeps_it_from_others(
    cluster: FakeApiServer, eager: Running
) -> None:
    """The pod itself passes there alone, and its bind uses what was reserved."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16))
    item = pending("p", 16)
    await backlog(cluster, eager, item)
    await until("it is nominated", lambda: nominated(cluster, "p"))
    name = nominated(cluster, "p")
    assert (await eager.filter(item, "a", "b"))["NodeNames"] == [name]
    assert (await eager.filter(item, name))["NodeNames"] == [name]
    (other,) = {"a", "b"} - {name}
    rival = pending("rival", 16)
    assert (await eager.filter(rival, "a", "b"))["NodeNames"] == [other]
    assert await eager.bind(item, name) == (200, "")
    assert not eager.state.ledger.nominations()


@pytest.mark.usefixtures("no_second_nomination")
async def test_a_node_that_the_scheduler_rejects_is_given_up(
    cluster: FakeApiServer, eager: Running
) -> None:
    """A call without the nominated node means that the scheduler's own filters rejected it."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 8))
    item = pending("p", 8)
    await backlog(cluster, eager, item)
    await until("it is nominated", lambda: nominated(cluster, "p"))
    (other,) = {"a", "b"} - {nominated(cluster, "p")}
    assert (await eager.filter(item, other))["NodeNames"] == [other]
    assert PodUid(item["metadata"]["uid"]) not in eager.state.ledger.nominations()


@pytest.mark.usefixtures("no_second_nomination")
async def test_a_rejected_nomination_is_not_replaced_before_it_is_cleared(
    cluster: FakeApiServer, eager: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the watch shows it the pod looks like one without; then like an earlier extender's."""
    rounds_made, reserved = [], set[PodUid]()
    nominate = Nominator.nominate

    async def counted(nominator: Nominator) -> int:
        found = await nominate(nominator)
        rounds_made.append(found)
        return found

    await nodes(cluster, eager, ready("a", 16))
    item = pending("p", 8)
    await known(cluster, eager, *(pending(f"head-{number}", 1) for number in range(2)), item)
    cluster.watches_flow.clear()
    await eager.filter(pending("caller", 1), "unknown")
    await until("it is nominated", lambda: nominated(cluster, "p"))
    monkeypatch.setattr(Nominator, "nominate", counted)
    assert (await eager.filter(item, "unknown"))["NodeNames"] == []
    await until("three rounds", lambda: len(rounds_made) >= 3)
    assert not eager.state.ledger.nominations()
    assert patches(cluster, "p") == 1
    cluster.watches_flow.set()

    def cleared() -> bool:
        reserved.update(eager.state.ledger.nominations())
        return patches(cluster, "p") >= 2

    await until("it is cleared", cleared)
    assert not reserved


@pytest.mark.parametrize("end", ["deleted", "terminating", "cleared", "elsewhere"])
async def test_a_reservation_ends_with_its_pod_or_its_nomination(
    cluster: FakeApiServer, eager: Running, end: str
) -> None:
    """The memory is free for others at once."""
    await nodes(cluster, eager, ready("a", 16))
    item = pending("p", 16)
    await backlog(cluster, eager, item)
    await until("it is nominated", lambda: nominated(cluster, "p"))
    await until("it is known", lambda: eager.state.find("default", "p").pod.nominated == "a")
    stored = cluster.find("pods", "p", "default")
    if end == "deleted":
        await cluster.delete("pods", "p", "default")
    else:
        changed = {"status": {"phase": "Pending"}}
        if end == "terminating":
            changed["metadata"] = stored["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            changed["status"]["nominatedNodeName"] = "a"
        elif end == "elsewhere":
            changed["status"]["nominatedNodeName"] = "z"
        await cluster.put("pods", stored | changed)
    await until("it is free", lambda: not eager.state.ledger.nominations())


async def test_a_refused_pod_that_fits_elsewhere_is_nominated_and_woken(
    cluster: FakeApiServer, eager: Running
) -> None:
    """One patch names the node and changes the annotation that makes the scheduler try again."""
    await nodes(cluster, eager, ready("a", 8), ready("b", 16))
    item = pending("p", 16)
    await known(cluster, eager, item)
    assert (await eager.filter(item, "a"))["NodeNames"] == []
    await until("it is nominated", lambda: nominated(cluster, "p") == "b")
    assert "gpushare/retry" in cluster.find("pods", "p", "default")["metadata"]["annotations"]
    assert patches(cluster, "p") == 1


async def test_a_pod_of_higher_priority_takes_the_place_of_nominated_ones(
    cluster: FakeApiServer, eager: Running
) -> None:
    """Those it displaces lose their nomination on the API server too."""
    await nodes(cluster, eager, ready("a", 16))
    low, high = pending("low", 16), pending("high", 16, priority=9)
    await backlog(cluster, eager, low)
    await until("it is nominated", lambda: nominated(cluster, "low"))
    await until("it is known", lambda: eager.state.find("default", "low").pod.nominated == "a")
    await known(cluster, eager, high)
    assert (await eager.filter(high, "a"))["NodeNames"] == []
    await until("high is nominated", lambda: nominated(cluster, "high") == "a")
    await eager.filter(high, "a")
    await until("low is cleared", lambda: not nominated(cluster, "low"))


async def test_a_nomination_that_no_longer_fits_is_cleared(
    cluster: FakeApiServer, eager: Running
) -> None:
    """A cordon of the node, here."""
    await nodes(cluster, eager, ready("a", 16))
    item = pending("p", 16)
    await backlog(cluster, eager, item)
    await until("it is nominated", lambda: nominated(cluster, "p"))
    await until("it is known", lambda: eager.state.find("default", "p").pod.nominated == "a")
    cordoned = ready("a", 16)
    cordoned["spec"] = {"unschedulable": True}
    await cluster.put("nodes", cordoned)
    await until("the cordon is known", lambda: eager.state.candidates.version("a").unschedulable)
    await eager.filter(pending("x", 1), "a")
    await until("it is cleared", lambda: not nominated(cluster, "p"))
    assert not eager.state.ledger.nominations()


async def test_nominations_of_the_scheduler_itself_stay(
    cluster: FakeApiServer, eager: Running
) -> None:
    """A pod for which others are evicted keeps the node that the scheduler chose."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16))
    item = pending("p", 8)
    item["status"]["nominatedNodeName"] = "z"
    await backlog(cluster, eager, item, pending("q", 8))
    await until("q is nominated", lambda: nominated(cluster, "q"))
    assert nominated(cluster, "p") == "z"
    assert patches(cluster, "p") == 0


async def test_nothing_is_written_where_nominating_is_off(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """And filter answers as before."""
    async with Running(cluster, tmp_path, nominate="off", nominate_after=0) as extender:
        await extender.ready()
        await nodes(cluster, extender, ready("a", 16))
        items = [pending(f"p{number}", 1) for number in range(5)]
        await known(cluster, extender, *items)
        assert (await extender.filter(items[0], "a"))["NodeNames"] == ["a"]
        assert not extender.state.ledger.nominations()


async def test_a_nomination_that_a_failed_attempt_cleared_is_written_again(
    cluster: FakeApiServer, eager: Running
) -> None:
    """kube-scheduler ends a failed attempt with a write of the status, which may come second."""
    await nodes(cluster, eager, ready("a", 8), ready("b", 16))
    item = pending("p", 16)
    await known(cluster, eager, item)
    assert (await eager.filter(item, "a"))["NodeNames"] == []
    for times in (1, 2):
        await until("it is nominated", lambda: nominated(cluster, "p") == "b")
        assert patches(cluster, "p") == times
        stored = cluster.find("pods", "p", "default")
        await cluster.put("pods", stored | {"status": {"phase": "Pending"}})


async def test_a_nomination_that_the_scheduler_does_not_use_expires(
    cluster: FakeApiServer, eager: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory is free again, and the API server shows no nomination."""
    await nodes(cluster, eager, ready("a", 16))
    item = pending("p", 16)
    await backlog(cluster, eager, item)
    await until("it is nominated", lambda: nominated(cluster, "p"))
    await until("it is known", lambda: eager.state.find("default", "p").pod.nominated == "a")
    monkeypatch.setattr(eager.service._nominator.ends, "_kept", 0.0)
    monkeypatch.setattr(due_pods, "CALLED_SECONDS", 0.0)
    await eager.filter(pending("caller", 1), "unknown")
    await until("it is cleared", lambda: not nominated(cluster, "p"))
    assert not eager.state.ledger.nominations()


async def test_nobody_is_evicted_for_a_pod_that_fits_elsewhere(
    cluster: FakeApiServer, eager: Running
) -> None:
    """The scheduler saw a sample of nodes without room; if no node has any, victims are named."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 8))
    victim = await cluster.put("pods", placed(pod("victim", 16), "a", 0))
    await eager.knows_pod(victim["metadata"]["uid"])
    small, large = pending("small", 8, priority=9), pending("large", 16, priority=9)
    await known(cluster, eager, small, large)
    victims = {"a": {"Pods": [{"UID": victim["metadata"]["uid"]}], "NumPDBViolations": 0}}
    for item, evicted in ((small, []), (large, ["a"])):
        body = {"Pod": item, "NodeNameToMetaVictims": victims}
        _, answer = await eager.post("/gpushare-scheduler/preempt", body)
        assert list(answer["NodeNameToMetaVictims"]) == evicted


async def test_victims_are_named_where_the_scheduler_reads_no_nomination(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Kubernetes 1.22 no pod is nominated to a free node outside of the sample."""

    async def too_old(_: object) -> bool:
        return False

    monkeypatch.setattr(service, "evaluates_nominated_first", too_old)
    async with Running(cluster, tmp_path, nominate="refused") as extender:
        await extender.ready()
        await nodes(cluster, extender, ready("a", 16), ready("b", 16))
        victim = await cluster.put("pods", placed(pod("victim", 16), "a", 0))
        await extender.knows_pod(victim["metadata"]["uid"])
        item = pending("p", 16, priority=9)
        await known(cluster, extender, item)
        assert (await extender.filter(item, "a"))["NodeNames"] == []
        victims = {"a": {"Pods": [{"UID": victim["metadata"]["uid"]}], "NumPDBViolations": 0}}
        body = {"Pod": item, "NodeNameToMetaVictims": victims}
        _, answer = await extender.post("/gpushare-scheduler/preempt", body)
        assert list(answer["NodeNameToMetaVictims"]) == ["a"]


async def test_the_next_leader_keeps_what_the_last_one_nominated(
    cluster: FakeApiServer, eager: Running, tmp_path: Path
) -> None:
    """Its scheduler calls from now on; memory that is nominated already goes to nobody else."""
    await nodes(cluster, eager, ready("a", 16), ready("b", 16))
    await backlog(cluster, eager, pending("p", 16))
    await until("p is nominated", lambda: nominated(cluster, "p"))
    (other,) = {"a", "b"} - {nominated(cluster, "p")}
    folder = tmp_path / "second"
    folder.mkdir()
    async with Running(cluster, folder, nominate="backlog", nominate_after=2) as second:
        await second.ready()
        await known(cluster, second, pending("q", 16), pending("r", 16))
        await second.filter(pending("caller", 1), "unknown")
        await until("q is nominated", lambda: nominated(cluster, "q"))
        assert nominated(cluster, "q") == other
        item = cluster.find("pods", "p", "default")
        assert nominated(cluster, "p") in (await second.filter(item, "a", "b"))["NodeNames"]
        assert nominated(cluster, "r") == ""
