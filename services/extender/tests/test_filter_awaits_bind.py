"""A pod is judged with the GPUs that the pod before it is about to take."""

import asyncio

from decoded import a_node, a_pod, assume, state_of
from objects import pod

from gpucore.units import PodUid
from gpuextender.scheduling.filter import MISSED, ExpectedBind
from gpuextender.state import State

FIRST, NEXT = PodUid("first"), PodUid("next")


def started(seconds: float = 60) -> tuple[State, ExpectedBind]:
    """A node, and a pod whose bind is expected."""
    state = state_of(a_node("n", 8))
    expected = ExpectedBind(state, seconds)
    state.add_event_handler(lambda _: expected.node_changed())
    expected.expect(FIRST)
    return state, expected


async def test_filter_waits_until_the_bind_has_reserved() -> None:
    """Its reservation is what counts, not its end."""
    state, expected = started()
    waiting = asyncio.create_task(expected.wait(NEXT))
    await asyncio.sleep(0)
    assert not waiting.done()
    assume(state, a_pod(pod("other", 1, uid="other")), "n")
    for _ in range(5):  # a deadline in the past needs some
        await asyncio.sleep(0)
    assert not waiting.done()
    assume(state, a_pod(pod("p", 2, uid=FIRST)), "n")
    for _ in range(5):
        await asyncio.sleep(0)
    assert waiting.done()
    await expected.wait(NEXT)


async def test_a_bind_that_does_not_come_is_not_awaited_for_long() -> None:
    """kube-scheduler dropped the pod."""
    _, expected = started(seconds=0.0)
    await expected.wait(NEXT)


async def test_a_scheduler_that_binds_otherwise_is_not_slowed_down() -> None:
    """After three binds that did not come, filter waits again only once one has come."""
    state, expected = started(seconds=0.0)
    for number in range(MISSED):
        expected.expect(PodUid(f"dropped-{number}"))
        await expected.wait(NEXT)
    expected._seconds = 60
    expected.expect(FIRST)
    async with asyncio.timeout(1):
        await expected.wait(NEXT)
    assume(state, a_pod(pod("p", 2, uid=FIRST)), "n")
    expected.expect(PodUid("second"))
    waiting = asyncio.create_task(expected.wait(NEXT))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_two_binds_that_did_not_come_are_too_few_to_stop_waiting() -> None:
    """kube-scheduler drops a pod now and then; those before a bind that came do not count."""
    state, expected = started(seconds=0.0)
    await expected.wait(NEXT)
    expected.expect(PodUid("binds"))
    assume(state, a_pod(pod("p", 2, uid="binds")), "n")
    for number in range(MISSED - 1):
        expected.expect(PodUid(f"dropped-{number}"))
        await expected.wait(NEXT)
    expected._seconds = 60
    expected.expect(FIRST)
    waiting = asyncio.create_task(expected.wait(NEXT))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_pod_that_comes_again_does_not_wait_for_itself() -> None:
    """Its first attempt ended without a bind."""
    _, expected = started()
    async with asyncio.timeout(1):
        await expected.wait(FIRST)


async def test_nothing_is_expected_of_a_pod_that_holds_gpus() -> None:
    """The scheduler filters again after a bind whose answer it lost."""
    state = state_of(a_node("n", 8))
    assume(state, a_pod(pod("p", 2, uid=FIRST)), "n")
    expected = ExpectedBind(state, 60)
    expected.expect(FIRST)
    async with asyncio.timeout(1):
        await expected.wait(NEXT)
