"""How nominations end, step by step: what is given back at once, and what is cleared after it."""

from collections.abc import Callable

import pytest
from decoded import assume
from nominating import pending
from nominationbench import Bench, count, gang
from replicas import read

from gpuextender.nomination.ends import (
    KEPT_BACKLOG_SECONDS,
    KEPT_SECONDS,
    LOST_SECONDS,
    UNSEEN_SECONDS,
)
from gpukube.errors import ServerError


@pytest.fixture
def refused_only(made: Callable[..., Bench]) -> Bench:
    """Nodes of 16, 12 and 8 units; pods are nominated that were refused."""
    return made(after=None)


BROKEN = {
    "a GPU broke": {"healthy": False},
    "it was cordoned": {"unschedulable": True},
    "it has a taint": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "it is not ready": {"ready": False},
    "it takes fewer pods": {"allocatable": {"pods": "0"}},
}


@pytest.mark.parametrize("change", BROKEN)
def test_a_nomination_to_a_node_that_cannot_take_the_pod_is_given_up(
    bench: Bench, change: str
) -> None:
    """Its memory is free at once, and the API server shows it no more."""
    bench.nominated(pending("p", 16))
    assert (bench.reserved, bench.shown) == ({"p": "a"}, {"p": "a"})
    bench.node("a", 16, **BROKEN[change])
    assert bench.nominator.woken.is_set()
    bench.look()
    assert bench.reserved == {}
    bench.send()
    assert bench.shown == {}


def test_a_nomination_to_a_node_that_is_gone_is_given_up(bench: Bench) -> None:
    """Its pod is nominated to another one after the pause of a lost nomination."""
    bench.nominated(pending("p", 12))
    (name,) = bench.reserved.values()
    bench.state.node_gone(name)
    bench.look()
    assert bench.reserved == {}
    bench.send()
    assert bench.shown == {}
    bench.time += 0.3
    bench.round()
    assert bench.reserved == {"p": ({"a", "b"} - {name}).pop()}


def test_a_nomination_to_a_gpu_that_holds_more_than_it_has_is_given_up(bench: Bench) -> None:
    """A pod came that nothing was reserved for, as one that was bound by hand."""
    bench.node("a", 16, 16)
    bench.nominated(pending("p", 14), pending("q", 14))
    assert bench.reserved == {"p": "a", "q": "a"}
    other = pending("other", 4)
    other["spec"]["nodeName"] = "a"
    other["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": "0"}
    bench.comes(other)
    bench.look()
    assert bench.reserved == {"q": "a"}


def test_nominations_to_other_nodes_stay_where_one_broke(bench: Bench) -> None:
    """And so do those to the same node that still fit."""
    bench.nominated(pending("p", 12), pending("q", 16))
    (broken,) = (node for name, node in bench.reserved.items() if name == "p")
    bench.node(broken, 12, healthy=False)
    bench.look()
    assert bench.reserved == {"q": "a"}


def test_a_change_that_leaves_the_pod_its_place_ends_nothing(bench: Bench) -> None:
    """A taint that it tolerates, as on a node whose other rules changed."""
    item = pending("p", 16)
    item["spec"]["tolerations"] = [{"operator": "Exists"}]
    bench.nominated(item)
    bench.node("a", 16, taints=[{"key": "k", "effect": "NoSchedule"}])
    bench.look()
    bench.send()
    assert (bench.reserved, bench.written) == ({"p": "a"}, ["a"])


def test_a_single_pod_of_a_backlog_keeps_its_nomination_for_a_minute(bench: Bench) -> None:
    """To the second; the round before states when to look again."""
    bench.nominated(pending("p", 16))
    bench.time += KEPT_BACKLOG_SECONDS - 1
    expired = count("expired")
    assert bench.look() == pytest.approx(1)
    assert bench.reserved == {"p": "a"}
    bench.time += 1
    bench.look()
    assert bench.reserved == {}
    assert count("expired") == expired + 1
    bench.send()
    assert bench.shown == {}


def test_a_refused_pod_keeps_its_nomination_for_a_quarter_of_that(refused_only: Bench) -> None:
    """Its scheduler binds it at once, or never."""
    bench = refused_only
    bench.comes(pending("p", 16))
    bench.refused("p", "b", "c")
    bench.time += 1
    bench.look()
    bench.send()
    assert bench.shown == {"p": "a"}
    bench.time += KEPT_SECONDS - 1
    assert bench.look() == pytest.approx(1)
    assert bench.reserved == {"p": "a"}
    bench.time += 1
    bench.look()
    assert bench.reserved == {}


def test_the_nominations_of_a_gang_are_kept_for_a_minute(refused_only: Bench) -> None:
    """Where those of single pods expire earlier, too: its scheduler binds all of its pods."""
    bench = refused_only
    bench.comes(gang("g0", mem=12), gang("g1", mem=12))
    bench.refused("g0", "c")
    bench.time += 1
    bench.look()
    assert set(bench.reserved) == {"g0", "g1"}
    bench.time += KEPT_SECONDS
    bench.look()
    assert set(bench.reserved) == {"g0", "g1"}
    bench.time += KEPT_BACKLOG_SECONDS - KEPT_SECONDS - 1
    assert bench.look() == pytest.approx(1)
    assert set(bench.reserved) == {"g0", "g1"}
    bench.time += 1
    bench.look()
    assert bench.reserved == {}


def test_of_several_nominations_the_first_to_expire_states_the_next_look(bench: Bench) -> None:
    """And it expires alone."""
    bench.nominated(pending("p", 16))
    bench.time += 20
    bench.nominated(pending("q", 12))
    assert bench.look() == pytest.approx(KEPT_BACKLOG_SECONDS - 20)
    bench.time += KEPT_BACKLOG_SECONDS - 20
    assert bench.look() == 0.25
    assert set(bench.reserved) == {"q"}


def test_a_bound_pod_needs_no_clear(bench: Bench) -> None:
    """Nor has it a nomination any more; its pauses are forgotten."""
    bench.nominated(pending("p", 16))
    bench.binds("p")
    bench.look()
    bench.send()
    assert bench.written == ["a"]
    assert not bench.replica.writes.written


def test_a_nomination_of_a_pod_that_is_being_bound_to_another_node_is_cleared(
    bench: Bench,
) -> None:
    """Its bind may fail, and nothing is reserved on the nominated node any more."""
    bench.nominated(pending("p", 12))
    assert bench.shown == {"p": "b"}
    found = bench.state.find("default", "p")
    bench.state.forget(found.pod.uid)
    assume(bench.state, found.pod, "a")
    bench.look()
    bench.send()
    assert bench.shown == {}


def test_the_nomination_of_the_next_pod_of_a_name_is_not_cleared(bench: Bench) -> None:
    """The scheduler wrote it, before the extender looked at the end of the first pod."""
    bench.nominated(pending("p", 16))
    bench.goes("p")
    bench.comes(pending("p", 16))
    bench.scheduler_writes("p", "a")
    bench.look()
    bench.send()
    assert bench.shown == {"p": "a"}
    assert not bench.replica.writes.written


def test_the_end_of_a_pod_needs_no_clear(bench: Bench) -> None:
    """Another pod of its name is not touched either."""
    bench.nominated(pending("p", 16))
    bench.goes("p")
    bench.time += 3  # the scheduler has not called lately
    bench.comes(pending("p", 4))
    bench.look()
    bench.send()
    assert bench.written == ["a"]
    assert not bench.replica.writes.written


def test_nothing_is_cleared_before_the_watch_brought_what_was_written(bench: Bench) -> None:
    """The version of the pod would be an old one."""
    given_up = count("given up")
    bench.round()
    bench.time += 30
    bench.comes(pending("p", 16))
    bench.round()
    bench.send_unheard()
    bench.node("a", 16, unschedulable=True)
    assert bench.look() == UNSEEN_SECONDS
    assert bench.replica.writes.written
    assert not len(bench.replica.writes)
    bench.hear()
    bench.look()
    bench.send()
    assert (bench.written, bench.shown) == (["a", ""], {})
    assert count("given up") == given_up + 1


def test_a_clear_is_sent_once_until_its_answer_came(bench: Bench) -> None:
    """The next rounds wait for the watch to bring it."""
    given_up = count("given up")
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    bench.time += 1
    assert bench.look() == UNSEEN_SECONDS
    assert len(bench.replica.writes) == 1
    assert count("given up") == given_up + 1
    bench.send_unheard()
    assert bench.look() == UNSEEN_SECONDS
    bench.hear()
    bench.look()
    assert not len(bench.replica.writes)
    assert not bench.replica.writes.written


def test_a_clear_that_failed_is_sent_again_after_a_pause(bench: Bench) -> None:
    """The pause of a lost nomination, which a failed patch doubles."""
    failed = count("failed")
    bench.nominated(pending("p", 16))
    bench.node("a", 16, unschedulable=True)
    bench.look()
    bench.cluster.failures = [ServerError("PATCH", status=500, message="no")]
    bench.send()
    assert count("failed") == failed + 1
    assert bench.shown == {"p": "a"}
    assert bench.look() == pytest.approx(0.5)
    assert not len(bench.replica.writes)
    bench.time += 0.5
    bench.look()
    bench.send()
    assert bench.shown == {}


def test_a_nomination_that_the_scheduler_replaced_is_not_cleared(bench: Bench) -> None:
    """It is the scheduler's own, for which it evicts pods."""
    given_up = count("given up")
    bench.nominated(pending("p", 16))
    bench.scheduler_writes("p", "b")
    bench.look()
    assert count("given up") == given_up
    bench.send()
    assert (bench.written, bench.shown, bench.reserved) == (["a"], {"p": "b"}, {})


def test_a_pod_that_lost_its_nomination_waits_longer_each_time(bench: Bench) -> None:
    """A quarter of a second, then a half, then a second; the round states when it ends."""
    bench.comes(pending("p", 16))
    for pause in (0.25, 0.5, 1.0):
        bench.round()
        bench.send()
        assert bench.shown == {"p": "a"}
        bench.scheduler_writes("p")
        assert bench.round() == pytest.approx(pause)
        assert bench.reserved == {}
        bench.time += pause


def test_what_was_reserved_before_a_resignation_is_forgotten_and_not_cleared(
    bench: Bench,
) -> None:
    """What the API server shows stays for the next leader, and is kept free as another's."""
    bench.nominated(pending("p", 16))
    bench.nominator.ends.resign()
    assert (bench.reserved, bench.shown) == ({}, {"p": "a"})
    assert not bench.replica.writes.written
    assert bench.state.nominations.nodes() == {"a"}


@pytest.mark.parametrize("end", ["deleted", "cleared", "broken", "bound elsewhere"])
def test_a_gang_that_lost_a_nomination_loses_the_others(bench: Bench, end: str) -> None:
    """In the same round: half a gang keeps no GPUs; what was written is cleared."""
    failed = count("gang failed")
    bench.nominated(gang("g0", mem=12), gang("g1", mem=12))
    assert set(bench.reserved) == {"g0", "g1"}
    lost = bench.reserved["g0"]
    if end == "deleted":
        bench.goes("g0")
    elif end == "cleared":
        bench.scheduler_writes("g0")
    elif end == "broken":
        bench.node(lost, 12, healthy=False)
    else:
        bench.scheduler_writes("g0", "c")
    bench.look()
    assert bench.reserved == {}
    assert count("gang failed") == failed + 1
    bench.send()
    assert "g1" not in bench.shown


def test_a_gang_of_which_pods_are_bound_keeps_the_other_nominations(bench: Bench) -> None:
    """A bind is how a nomination is meant to end; the loss of another one counts after it."""
    bench.nominated(*(gang(f"g{number}", 3, 4) for number in range(3)))
    bench.binds("g0")
    bench.look()
    assert set(bench.reserved) == {"g1", "g2"}
    bench.goes("g1")
    bench.look()
    assert bench.reserved == {}


def test_a_pod_of_a_gang_that_is_deleted_after_its_bind_ends_no_nomination(bench: Bench) -> None:
    """It does not belong to those that wait any more."""
    bench.nominated(*(gang(f"g{number}", 3, 4) for number in range(3)))
    bench.binds("g0")
    bench.look()
    bench.goes("g0")
    bench.look()
    assert set(bench.reserved) == {"g1", "g2"}


def test_the_loss_of_one_gang_leaves_the_others(bench: Bench) -> None:
    """Of the same namespace, in the same round."""
    bench.nominated(gang("g0", mem=4), gang("g1", mem=4))
    bench.nominated(gang("h0", mem=4, group="h"), gang("h1", mem=4, group="h"))
    assert len(bench.reserved) == 4
    bench.goes("g0")
    bench.look()
    assert set(bench.reserved) == {"h0", "h1"}


def test_a_nomination_that_a_restore_lost_is_written_again(bench: Bench) -> None:
    """The pod has the older version of the backup, maybe for ever; other pods go on meanwhile."""
    bench.cluster.version = 100
    bench.comes(pending("p", 16))
    backup = bench.stored("p")
    bench.cluster.version = 500
    bench.round()
    bench.send()
    bench.hear()
    assert bench.shown == {"p": "a"}
    bench.cluster.pods = {"p": backup}
    bench.state.relist_pods([read(backup)])
    bench.time += KEPT_BACKLOG_SECONDS
    assert bench.round() == UNSEEN_SECONDS
    bench.time += LOST_SECONDS - 1
    assert bench.round() == UNSEEN_SECONDS
    assert bench.reserved == {}
    bench.time += 1
    bench.round()
    bench.send()
    assert (bench.reserved, bench.shown) == ({"p": "a"}, {"p": "a"})
    bench.hear()
    bench.time += KEPT_BACKLOG_SECONDS
    bench.round()
    bench.send()
    assert (bench.reserved, bench.shown) == ({}, {})
