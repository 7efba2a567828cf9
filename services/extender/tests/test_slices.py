"""A question of a person about the whole cluster does not make the scheduler wait."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from time import process_time
from typing import Any, cast

import msgspec
import pytest
from objects import node, placed, pod
from podapi import OnePod

from gpucore.explain.answers import MOST_REFUSALS
from gpucore.explain.whatif_documents import WhatIfDoc
from gpucore.model import ContainerRequest, PodRequest
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.simulate.questions import Question
from gpucore.simulate.whatif import WhatIfPod
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import decode_pod
from gpuextender.http import views
from gpuextender.http.readapi import PodQuestions
from gpuextender.http.views import inspect_all
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.server.time_slices import TimeSlices, encoded

NODES = 800
BAR_SECONDS = 0.005
"""What a filter may take in all; other work must fit into it as well."""
BAR_PART = 0.2
"""Of the whole: where that takes longer, the machine is so slow that a filter takes longer too."""
TRIES = 3
"""A machine that is busy disturbs one or two; work that does not pause is as long in all."""


@pytest.fixture
def state() -> Iterator[State]:
    """Nodes with eight GPUs that differ, and a collector that stays out, as in production."""
    state = State(DEFAULT_NAMES)
    for number in range(NODES):
        name = f"n{number:04}"
        state.node_changed(decode_node(json.dumps(node(name, *[40] * 8, unit="GiB")).encode()))
        for gpu in range(number % 9):
            held = placed(pod(f"p{number}-{gpu}", 1 + (number + gpu) % 40), name, gpu % 8)
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


def questions(state: State, item: dict[str, Any]) -> PodQuestions:
    """As the service has it, with an API server that has this pod."""
    api = cast("KubeClient", OnePod(item))
    return PodQuestions(state, api, ClusterPolicy())


async def explain(state: State) -> msgspec.Struct:
    """Why a pod waits: no node has room, so that all suggestions are worked out."""
    item = pod("pending", 40, core=10)
    found = await questions(state, item).explain("default", "pending", TimeSlices())
    assert found is not None
    return found


async def whole(state: State) -> msgspec.Struct:
    """The same for exclusive GPUs."""
    item = pod("pending", gpus=8)
    found = await questions(state, item).explain("default", "pending", TimeSlices())
    assert found is not None
    return found


async def whatif(state: State) -> msgspec.Struct:
    """What becomes of pods that fit and of one that does not."""
    whatif_pods = [
        WhatIfPod(f"w{number}", PodRequest((ContainerRequest(mem),), mem=mem))
        for number, mem in enumerate((3, 3))
    ]
    whatif_pods.append(WhatIfPod("large", PodRequest((ContainerRequest(41),), mem=41)))
    return await questions(state, pod("none")).what_if(Question(whatif_pods, []), TimeSlices())


async def nodes(state: State) -> msgspec.Struct:
    """All nodes with their GPUs and pods."""
    return await views.nodes_view(state.ledger, TimeSlices())


async def inspect(state: State) -> msgspec.Struct:
    """The original's view of them."""
    return await inspect_all(state.ledger, TimeSlices())


@pytest.mark.slow
@pytest.mark.budget
@pytest.mark.parametrize("question", [explain, whole, whatif, nodes, inspect])
async def test_others_are_answered_meanwhile(
    state: State, question: Callable[[State], Awaitable[msgspec.Struct]]
) -> None:
    """While nodes are evaluated and the answer is written no call waits longer than a filter."""

    async def written() -> tuple[msgspec.Struct, bytes]:
        view = await question(state)
        return view, await encoded(view, TimeSlices())

    waits = []
    for _ in range(TRIES):
        wait, (view, text) = await longest_wait(written())  # type: ignore[misc]
        assert text == msgspec.json.encode(view)
        waits.append(wait)
    assert min(waits) < 1


@pytest.mark.slow
async def test_a_pod_that_fits_nowhere_hears_a_hundred_nodes(state: State) -> None:
    """Each later pod sees the earlier ones; refusals are few enough to be sent, and counted."""
    found = await whatif(state)
    assert isinstance(found, WhatIfDoc)
    first, second, large = found.items
    assert first.fits
    assert second.fits
    assert not large.fits
    assert len(large.refusals) == MOST_REFUSALS
    assert large.text == f"fits no node; refusals of 100 of {NODES} nodes:"
