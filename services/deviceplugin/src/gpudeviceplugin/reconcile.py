"""Holds kubelet's account against the annotations, after each grant and now and then.

What differs is patched to the truth, with the pod's uid as precondition, and an event on the pod
says why. A patch that fails is made again at the next look; nothing is remembered but what was
sent.
"""

import asyncio
import time
from typing import Final

import structlog

from gpucore.node.reconcile import Correction, Truth, corrections
from gpudeviceplugin import telemetry
from gpudeviceplugin.events import Events, Subject
from gpudeviceplugin.podresources import PodResources, TruthError
from gpudeviceplugin.state import NodeState
from gpukube.client import KubeClient
from gpukube.errors import KubeError

log = structlog.get_logger()

SETTLE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0
"""Pause while it is not known what a restarted kubelet remembers."""


class Reconciler:
    """One node's annotations."""

    def __init__(
        self,
        state: NodeState,
        kubelet: PodResources,
        kube: KubeClient,
        events: Events,
        *,
        every: float,
    ) -> None:
        self._state = state
        self._kubelet = kubelet
        self._kube = kube
        self._events = events
        self._every = every
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Look again after every grant and every so often, until cancelled."""
        while True:
            seen = self._state.grant_made.count
            pause = self._every if await self.look() else SETTLE_SECONDS
            if self._state.suspicious:
                pause = min(max(pause, RETRY_SECONDS), self._every)
            await self._state.grant_made.beyond_or_after(seen, pause)
            await asyncio.sleep(SETTLE_SECONDS)  # kubelet notes a grant just after it was made

    async def look(self) -> bool:
        """Compare once; false while kubelet has yet to tell of something that was granted."""
        state = self._state
        asked_at = state.settled_turn()
        try:
            held = await self._kubelet.list()
        except TruthError as error:
            log.warning("kubelet does not say who holds what", why=str(error))
            return True
        known = set(state.forgotten)
        told = state.believe(held, asked_at=asked_at)
        for uid in state.forgotten - known:
            pod = state.pods[uid]
            log.warning(
                "kubelet has lost its record of the devices of a running pod; they are kept for it",
                pod=f"{pod.namespace}/{pod.name}",
            )
        self.synced.set()
        names, inherited = state.policy.names, state.inherited.pods
        truth = Truth(state.inventory, names, time.time_ns(), inherited)
        found = corrections(state.account(), state.pods.values(), truth)
        telemetry.DISAGREEMENTS.set(sum(bool(each.reason) for each in found))
        await asyncio.gather(*map(self._correct, found))
        return told and not found

    async def _correct(self, correction: Correction) -> None:
        path = f"/api/v1/namespaces/{correction.namespace}/pods/{correction.name}"
        patch = {"metadata": {"uid": correction.uid, "annotations": dict(correction.annotations)}}
        try:
            await self._kube.patch(path, patch)
        except KubeError as error:
            log.warning("cannot patch", pod=correction.name, why=str(error))
            return
        if correction.reason:
            telemetry.CORRECTIONS.labels(correction.reason).inc()
            log.info("corrected", pod=correction.name, why=correction.message)
            subject = Subject("Pod", correction.name, correction.namespace, correction.uid)
            await self._events.tell(subject, correction.reason, correction.message)
