"""Learns the mix of pods that usually come, beside the requests of schedulers.

The state counts each pod as the watch brings it. Here the counts become a mix now and then, in
slices of a millisecond. A new mix goes to a few nodes at a time, and what the cache keeps of these
is computed before the next ones follow: no request has to rate thousands of nodes again at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import structlog

from gpucore.claims.arrivals import ClaimArrivals
from gpucore.scheduling.host_rooms import allowed_models, usual_unit
from gpucore.units import NodeName
from gpucore.workload.pod_mix import PodMix
from gpuextender import metrics
from gpuextender.state import State
from gpukube.server.time_slices import TimeSlices

LOOK_SECONDS: Final = 1.0
LEARN_SECONDS: Final = 60.0
"""The mix is learned at least this often, and earlier after many new pods."""
GROWTH: Final = 1.25
"""Times the number of pods at the last time."""
NODES_AT_ONCE: Final = 16

log = structlog.get_logger(__name__)


class MixLearner:
    """Keeps the mix in use up to date.

    Args:
        node_changed: called with each node that compares placements by another mix now.
        refresh: computes what is kept of these nodes.
        with_claims: pods with claims that are to be counted; ``None`` where claims are not read.
        on_use: called with the mix once all nodes compare placements by it, and after each look
            that changes nothing; ``None`` is the guess.
        now: seconds of a steady clock.
    """

    def __init__(
        self,
        state: State,
        node_changed: Callable[[NodeName], object],
        refresh: Callable[[], Awaitable[None]],
        *,
        with_claims: ClaimArrivals | None = None,
        on_use: Callable[[PodMix | None], object] = lambda _: None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._state, self._node_changed, self._refresh = state, node_changed, refresh
        self._with_claims, self._on_use = with_claims, on_use
        self._now = now
        self._learned_at = float("-inf")
        self._pods = 0

    async def run(self) -> None:
        """Learn for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._count()
            if self.due():
                await self.learn()

    def due(self) -> bool:
        """Whether enough pods came, or enough time has passed."""
        pods = len(self._state.mix.history)
        late = self._now() - self._learned_at >= LEARN_SECONDS
        return bool(pods) and (late or pods >= GROWTH * self._pods)

    async def learn(self) -> bool:
        """Use what the pods say now; whether the mix in use changed."""
        await self._count()
        state, slices = self._state, TimeSlices()
        self._learned_at, self._pods = self._now(), len(state.mix.history)
        nodes = (
            (node_info, node)
            for name, node_info in list(state.ledger.nodes().items())
            if (node := state.candidates.version(name)) is not None
        )
        selectors = await slices.finish(state.mix.history.selectors())
        models = await slices.finish(allowed_models(selectors, nodes))
        unit = await slices.finish(usual_unit(list(state.ledger.nodes().values())))
        changed = await slices.finish(state.mix.learn(models, unit))
        in_use = state.mix.mix
        metrics.MIX_PODS.set(self._pods)
        if changed and in_use is not None:
            metrics.MIX_CHANGES.inc()
            metrics.MIX_KINDS.set(len(in_use.kinds))
            log.info("mix of pods learned", pods=self._pods, kinds=len(in_use.kinds))
            await self._roll_out()
        self._on_use(in_use)
        return changed

    async def _count(self) -> None:
        if self._with_claims is not None:
            await TimeSlices().finish(self._with_claims.count())

    async def _roll_out(self) -> None:
        for number, name in enumerate(list(self._state.ledger.nodes()), 1):
            self._state.use_mix(name)
            self._node_changed(name)
            if number % NODES_AT_ONCE == 0:
                await self._refresh()
                await asyncio.sleep(0)
        await self._refresh()
