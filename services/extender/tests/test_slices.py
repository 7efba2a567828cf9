"""A question of a person about the whole cluster does not make the scheduler wait."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from time import process_time

import msgspec
import pytest
from objects import node, placed, pod

from gpucore.grouping import BY_LINKS
from gpucore.model import Ask, Demand
from gpucore.whatif import Wish
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpuextender import questions, views
from gpuextender.inspection import inspect_all
from gpuextender.slices import Slices, encoded
from gpuextender.state import State

NODES = 800
BAR_SECONDS = 0.005
"""What a filter may take in all; other work must fit into it as well."""
BAR_PART = 0.2
"""Of the whole: where that takes longer, the machine is so slow that a filter takes longer too."""
TRIES = 3
"""A machine that is busy disturbs one or two; work that does not pause is as long in all."""


@pytest.fixture
def state() -> Iterator[State]:
    """Nodes with eight cards that differ, and a collector that stays out, as in production."""
    state = State(DEFAULT_NAMES)
    for number in range(NODES):
        name = f"n{number:04}"
        state.node_changed(decode_node(json.dumps(node(name, *[40] * 8, unit="GiB")).encode()))
        for card in range(number % 9):
            held = placed(pod(f"p{number}-{card}", 1 + (number + card) % 40), name, card % 8)
            state.pod_changed(decode_pod(json.dumps(held).encode()))
    gc.collect()
    gc.disable()
    yield state
    gc.enable()


async def longest_wait(work: Awaitable[object]) -> tuple[float, object]:
    """What another task waited for at once, at most, in parts of the bar; what came of the work."""
    task = asyncio.ensure_future(work)
    waits = []
    while not task.done():
        began = process_time()
        await asyncio.sleep(0)
        waits.append(process_time() - began)
    assert len(waits) > 3
    bar = max(BAR_SECONDS, BAR_PART * sum(waits))
    return sorted(waits)[int(len(waits) * 0.99)] / bar, task.result()


async def explain(state: State) -> msgspec.Struct:
    """Why a pod waits."""
    asking = state.saw(decode_pod(json.dumps(pod("asked", 30, core=10)).encode()))
    return await views.waiting_view(
        state.ledger, asking, Slices(), policy="binpack", grouping=BY_LINKS
    )


async def whatif(state: State) -> msgspec.Struct:
    """What becomes of pods that fit and of one that does not."""
    wishes = [Wish(f"w{number}", Demand((Ask(mem),), mem=mem)) for number, mem in enumerate((3, 3))]
    wishes.append(Wish("large", Demand((Ask(41),), mem=41)))
    return await questions.answer(
        state.ledger, wishes, Slices(), policy="binpack", grouping=BY_LINKS
    )


async def nodes(state: State) -> msgspec.Struct:
    """All nodes with their cards and pods."""
    return await views.nodes_view(state.ledger, Slices())


async def inspect(state: State) -> msgspec.Struct:
    """The original's view of them."""
    return await inspect_all(state.ledger, Slices())


@pytest.mark.parametrize("question", [explain, whatif, nodes, inspect])
async def test_others_are_answered_meanwhile(
    state: State, question: Callable[[State], Awaitable[msgspec.Struct]]
) -> None:
    """While nodes are asked and the answer is written nobody waits longer than a filter's bar."""

    async def written() -> tuple[msgspec.Struct, bytes]:
        view = await question(state)
        return view, await encoded(view, Slices())

    waits = []
    for _ in range(TRIES):
        wait, (view, text) = await longest_wait(written())  # type: ignore[misc]
        assert text == msgspec.json.encode(view)
        waits.append(wait)
    assert min(waits) < 1


async def test_a_pod_that_fits_nowhere_hears_a_hundred_nodes(state: State) -> None:
    """Each later wish sees the earlier ones; refusals are few enough to be sent, and counted."""
    found = await whatif(state)
    first, second, large = found.pods
    assert first.fits
    assert second.fits
    assert not large.fits
    assert len(large.refusals) == questions.MOST_REFUSALS
    assert large.text == f"fits nowhere; what 100 of {NODES} nodes say:"
