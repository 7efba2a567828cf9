"""Jobs that run beside the verbs for as long as the process lives."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from time import time_ns
from typing import Final

import structlog

from gpucore.model import ClaimState
from gpucore.units import PodUid
from gpuextender.health import Health
from gpuextender.state import State

EXPIRE_PARTS: Final = 4
NANOSECONDS: Final = 1_000_000_000
YOUNG_OBJECTS: Final = 50_000

log = structlog.get_logger(__name__)


async def expire_reservations(state: State, health: Health, *, ttl: float) -> None:
    """Give back reservations that nothing told about, while the watch can be trusted.

    Args:
        ttl: seconds; longer than a bind can take.
    """
    while True:
        await asyncio.sleep(ttl / EXPIRE_PARTS)
        if health.obstacle():
            continue
        late = state.expire(now_ns=time_ns(), ttl_ns=int(ttl * NANOSECONDS))
        if late:
            log.warning("reservations expired", uids=late)


async def forget_after_lists(state: State, listed: asyncio.Event, *, seconds: float) -> None:
    """Forget assumed pods that a list of all pods did not confirm: their Binding was lost.

    A list follows a failure, and no bind begins between the two (see :mod:`gpuextender.health`).
    The places that a gang reserves have no Binding; they expire as usual.

    Args:
        listed: set by a complete list of pods.
        seconds: longer than a bind can take; none from before the failure is running after them.
    """
    while True:
        await listed.wait()
        listed.clear()
        await asyncio.sleep(seconds)
        late = _assumed_before(state, time_ns() - int(seconds * NANOSECONDS))
        for uid in late:
            state.forget(uid)
        if late:
            log.warning("bindings lost by the API server", uids=late)


def _assumed_before(state: State, now_ns: int) -> list[PodUid]:
    claims = state.ledger.claims().values()
    passing = (claim for claim in claims if claim.state is ClaimState.ASSUMED)
    return [claim.uid for claim in passing if claim.assume_time <= now_ns]


async def settle_memory(loaded: Awaitable[None], warm: Callable[[], Awaitable[None]]) -> None:
    """Keep the garbage collector from walking the whole cluster in the middle of a filter.

    While the cluster is being read nothing is garbage; once it is read, it is set aside as it is:
    looking for garbage in it first would take longer than a scheduler waits for an answer.

    Args:
        loaded: until the cluster is read.
        warm: makes what lives as long.
    """
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        await loaded
        await warm()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 50, 50)
        gc.enable()
        await asyncio.Event().wait()
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
