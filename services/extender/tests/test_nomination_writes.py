"""The patches of nominations: which are sent, what they state, and what follows their failure."""

from collections.abc import Callable

import pytest
from nominating import pending
from nominationbench import Bench, count, gang
from replicas import nominate

from gpuextender.nomination.ends import KEPT_BACKLOG_SECONDS
from gpuextender.nomination.rounds import FRESH_SECONDS, LOOK_SECONDS
from gpuextender.nomination.writes import MANAGER
from gpukube.errors import ConflictError, ServerError

Made = Callable[..., Bench]
FAILED = ServerError("PATCH", status=500, message="no")


def test_a_patch_names_the_pod_by_uid_and_version(bench: Bench) -> None:
    """The API server refuses it for another pod of the name, and for one that changed."""
    item = pending("p", 16)
    bench.comes(item)
    bench.round()
    bench.send()
    (patch,) = bench.cluster.patches
    assert patch == {
        "metadata": {"uid": item["metadata"]["uid"], "resourceVersion": "1"},
        "status": {"nominatedNodeName": "a"},
    }


def test_the_patch_of_a_refused_pod_wakes_its_scheduler(bench: Bench) -> None:
    """By an annotation; the patch of another pod does not."""
    bench.comes(pending("p", 16), pending("q", 12))
    bench.refused("p", "c")
    bench.time += 1
    bench.look()
    bench.send()
    annotations = {
        one["status"]["nominatedNodeName"]: one["metadata"].get("annotations", {})
        for one in bench.cluster.patches
    }
    assert list(annotations["a"]) == ["gpushare/retry"]
    assert annotations["b"] == {}


def test_a_pod_that_ended_before_its_patch_is_not_written(bench: Bench) -> None:
    """Nor one whose reservation ended, or is on another node by now."""
    bench.comes(pending("p", 16), pending("q", 12))
    bench.round()
    bench.goes("p")
    bench.state.forget_nomination(bench.state.find("default", "q").pod.uid)
    bench.send()
    assert bench.written == []


def test_a_pod_that_its_scheduler_nominated_meanwhile_keeps_that(bench: Bench) -> None:
    """And what was reserved here is given back; the other node keeps its capacity for it."""
    bench.comes(pending("p", 16))
    bench.round()
    item = bench.stored("p")
    nominate(item, "b", "kube-scheduler")
    bench.cluster.put(item)
    bench.hear()
    bench.send()
    assert (bench.written, bench.reserved, bench.shown) == ([], {}, {"p": "b"})
    assert bench.state.nominations.nodes() == {"b"}


def test_a_patch_that_comes_after_the_scheduler_called_is_not_sent(bench: Bench) -> None:
    """The scheduler places the pod now; the reservation stays for its bind."""
    overtaken = count("overtaken")
    item = pending("p", 16)
    bench.comes(item, pending("q", 12))
    bench.round()
    bench.saw(item)
    bench.send()
    assert bench.shown == {"q": "b"}
    assert bench.reserved == {"p": "a", "q": "b"}
    assert count("overtaken") == overtaken + 1


def test_a_call_counts_for_the_patch_that_waits_alone(bench: Bench) -> None:
    """The next nomination of the pod is written again."""
    item = pending("p", 16)
    bench.comes(item)
    bench.round()
    bench.saw(item)
    bench.send()
    bench.state.forget_nomination(bench.state.find("default", "p").pod.uid)
    bench.round()
    bench.send()
    assert bench.shown == {"p": "a"}


def test_a_call_about_a_pod_that_is_written_ends_nothing(bench: Bench) -> None:
    """It is what the nomination is for."""
    item = pending("p", 16)
    bench.nominated(item)
    bench.saw(item)
    bench.scheduler_writes("p")
    bench.look()
    bench.time += 1
    bench.round()
    bench.send()
    assert bench.shown == {"p": "a"}


def test_a_call_during_the_patch_counts_for_no_later_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that was called about while its patch was on its way is nominated again later."""
    bench.comes(pending("p", 16))
    bench.round()
    patch = bench.cluster.patch

    async def called_about(path: str, body: bytes) -> bytes:
        bench.saw(bench.stored("p"))
        return await patch(path, body)

    monkeypatch.setattr(bench.cluster, "patch", called_about)
    bench.send()
    monkeypatch.setattr(bench.cluster, "patch", patch)
    bench.scheduler_writes("p")
    bench.round()
    bench.time += 1
    bench.round()
    bench.send()
    assert bench.written == ["a", "a"]


def test_a_call_counts_for_no_patch_of_a_later_term(bench: Bench) -> None:
    """A patch that is dropped because another process leads takes the call with it."""
    item = pending("p", 16)
    bench.comes(item)
    bench.round()
    bench.saw(item)
    bench.leads = False
    bench.look()
    bench.send()
    bench.leads = True
    bench.round()
    bench.send()
    assert bench.written == ["a"]


def test_the_patch_of_a_refused_pod_is_sent_although_its_scheduler_called(bench: Bench) -> None:
    """Its attempt failed: the nomination is for the next one."""
    bench.comes(pending("p", 16))
    bench.round()
    bench.refused("p", "c")
    bench.send()
    assert bench.shown == {"p": "a"}


@pytest.mark.parametrize("failure", [FAILED, b"<html>"])
def test_a_patch_that_fails_gives_its_memory_back_and_the_pod_waits(
    bench: Bench, failure: Exception | bytes
) -> None:
    """A quarter of a second; then it is nominated again. The page of a proxy is a failure too."""
    failed = count("failed")
    bench.comes(pending("p", 16))
    bench.round()
    bench.cluster.failures = [failure]
    bench.nominator.woken.clear()
    bench.send()
    assert (bench.reserved, bench.shown) == ({}, {})
    assert bench.nominator.woken.is_set()
    assert count("failed") == failed + 1
    assert bench.round() == pytest.approx(0.25)
    bench.time += 0.25
    bench.round()
    bench.send()
    assert bench.shown == {"p": "a"}


def test_a_patch_that_fails_for_one_pod_of_a_gang_ends_the_nominations_of_the_others(
    bench: Bench,
) -> None:
    """Those that were written are cleared."""
    bench.comes(gang("g0", mem=12), gang("g1", mem=12))
    bench.round()
    bench.cluster.failures = [ConflictError("PATCH", status=409, message="changed")]
    bench.send()
    assert set(bench.shown) == {"g1"}
    bench.look()
    assert bench.reserved == {}
    bench.send()
    assert bench.shown == {}


def test_a_nomination_that_is_given_back_while_its_patch_is_on_its_way_is_cleared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod waits meanwhile, as one that lost a nomination."""
    bench.round()
    bench.time += 30
    bench.comes(pending("p", 16))
    bench.round()
    patch = bench.cluster.patch

    async def slow(path: str, body: bytes) -> bytes:
        bench.state.forget_nomination(bench.state.find("default", "p").pod.uid)
        return await patch(path, body)

    monkeypatch.setattr(bench.cluster, "patch", slow)
    bench.nominator.woken.clear()
    bench.send()
    assert bench.nominator.woken.is_set()
    bench.round()
    assert bench.reserved == {}
    monkeypatch.undo()
    bench.send()
    assert bench.shown == {}


def test_one_that_leads_no_more_writes_and_clears_nothing(bench: Bench) -> None:
    """The next leader decides."""
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    bench.comes(pending("q", 12))
    bench.round()
    bench.leads = False
    bench.send()
    assert bench.written == ["a"]
    assert bench.shown == {"p": "a"}


def test_a_clear_that_came_while_another_led_is_sent_once_this_one_leads_again(
    bench: Bench,
) -> None:
    """The Lease was read late, and no other term began."""
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    bench.leads = False
    bench.send()
    bench.leads = True
    bench.time += 1
    bench.look()
    bench.send()
    assert bench.shown == {}


def test_a_clear_leaves_what_the_scheduler_wrote_meanwhile(bench: Bench) -> None:
    """The pod is read before: only what an extender wrote is cleared."""
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    item = bench.stored("p")
    nominate(item, "b", "kube-scheduler")
    bench.cluster.put(item)
    bench.send()
    assert (bench.written, bench.shown) == (["a"], {"p": "b"})
    assert not bench.replica.writes.written


def test_a_clear_of_a_pod_that_is_gone_meanwhile_is_dropped(bench: Bench) -> None:
    """Nor is another pod of its name touched."""
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    bench.cluster.delete("p")
    other = pending("p", 4)
    nominate(other, "a", MANAGER)
    bench.cluster.put(other)
    bench.send_unheard()
    assert (bench.written, bench.shown) == (["a"], {"p": "a"})


# What an extender wrote before.


def test_nominations_are_adopted_after_a_restart(bench: Bench) -> None:
    """The memory is reserved again and nothing is written; the scheduler's own stay as they are."""
    bench.nominated(pending("p", 16))
    bench.comes(pending("theirs", 12))
    bench.scheduler_writes("theirs", "b")
    bench.restart()
    bench.round()
    bench.send()
    assert bench.reserved == {"p": "a"}
    assert (bench.written, bench.shown) == (["a"], {"p": "a", "theirs": "b"})


def test_what_no_longer_fits_after_a_restart_is_cleared(bench: Bench) -> None:
    """As any nomination that ended."""
    bench.nominated(pending("p", 16))
    bench.restart()
    bench.node("a", 16, unschedulable=True)
    bench.round()
    bench.send()
    assert (bench.reserved, bench.shown) == ({}, {})


def test_an_adopted_nomination_expires_too(bench: Bench) -> None:
    """Its time begins with the adoption."""
    bench.nominated(pending("p", 16))
    bench.restart()
    bench.time += 500
    bench.round()
    bench.time += 59
    bench.look()
    assert bench.reserved == {"p": "a"}
    bench.time += 1
    bench.look()
    bench.send()
    assert (bench.reserved, bench.shown) == ({}, {})


def test_a_nomination_that_cannot_be_read_is_read_again(bench: Bench) -> None:
    """In the next round; the memory is kept meanwhile, as the scheduler's would be."""
    bench.nominated(pending("p", 16))
    bench.restart()
    bench.cluster.broken = True
    bench.comes(pending("q", 16))
    bench.round()
    assert bench.reserved == {}
    bench.cluster.broken = False
    bench.round()
    assert bench.reserved == {"p": "a"}


def test_a_nomination_that_could_not_be_read_for_long_is_adopted(bench: Bench) -> None:
    """Else it would keep its memory from other pods for as long as its pod is pending."""
    bench.nominated(pending("p", 16))
    bench.restart()
    bench.cluster.broken = True
    for _ in range(5):
        assert bench.round() == FRESH_SECONDS
        bench.time += LOOK_SECONDS
    bench.cluster.broken = False
    bench.round()
    assert bench.reserved == {"p": "a"}
    bench.time += KEPT_BACKLOG_SECONDS
    bench.look()
    bench.send()
    assert (bench.reserved, bench.shown) == ({}, {})


@pytest.mark.parametrize(("after", "adopted"), [(LOOK_SECONDS, True), (LOOK_SECONDS + 1, False)])
def test_nominations_that_come_late_are_adopted_for_some_seconds(
    bench: Bench, after: float, *, adopted: bool
) -> None:
    """The watch of a new leader may be behind; later ones are not an extender's."""
    bench.round()
    bench.time += after
    item = pending("p", 16)
    nominate(item, "a", MANAGER)
    bench.comes(item)
    bench.look()
    assert bench.reserved == ({"p": "a"} if adopted else {})


def test_each_nomination_is_read_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when the pod is nominated to another node, or this process begins another term."""
    bench.comes(pending("p", 16))
    bench.scheduler_writes("p", "a")
    reads: list[str] = []
    get = bench.cluster.get

    async def counted(path: str) -> bytes:
        reads.append(path)
        return await get(path)

    monkeypatch.setattr(bench.cluster, "get", counted)
    for _ in range(3):
        bench.round()
    assert len(reads) == 1
    bench.scheduler_writes("p", "b")
    bench.round()
    assert len(reads) == 2
    bench.replica.term += 1
    bench.round()
    assert len(reads) == 3


def test_a_clear_leaves_what_another_extender_wrote_meanwhile(bench: Bench) -> None:
    """Only the very nomination that ended is cleared."""
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    item = bench.stored("p")
    nominate(item, "b", MANAGER)
    bench.cluster.put(item)
    bench.send_unheard()
    assert (bench.written, bench.shown) == (["a"], {"p": "b"})


def test_an_adopted_nomination_ends_when_the_scheduler_clears_it(bench: Bench) -> None:
    """As one that was written here; its memory is free at once."""
    bench.nominated(pending("p", 16))
    bench.restart()
    bench.round()
    assert bench.reserved == {"p": "a"}
    bench.scheduler_writes("p")
    assert bench.reserved == {}
