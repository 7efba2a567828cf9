"""Compares kubelet's allocations with the annotations, after each Allocate and periodically.

A differing annotation is patched to kubelet's allocation, with the pod's UID as precondition, and
an event on the pod gives the reason. A failed patch is sent again after a pause that doubles with
every failure, up to the interval of comparisons: one that the API server always refuses costs it
and kubelet next to nothing.
"""

import asyncio
import time
from typing import Final

import structlog

from gpucore.node.allocation.holdings import Held
from gpucore.node.reconcile.corrections import Correction, CorrectionInput, corrections
from gpucore.node.reconcile.forgotten import MISSING, WITHOUT_SHARE, started_without
from gpucore.units import PodUid
from gpudeviceplugin import telemetry
from gpudeviceplugin.cluster.events import WARNING, Events, Subject
from gpudeviceplugin.kubelet.pod_resources import PodResourcesClient, PodResourcesError
from gpudeviceplugin.state import NodeState
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import KubeError

log = structlog.get_logger()

SETTLE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0
"""Seconds between comparisons until a restarted kubelet has listed its allocations."""


class _Retry:
    """When a patch that failed is sent again."""

    def __init__(self, longest: float) -> None:
        self._backoff = Backoff(first=SETTLE_SECONDS, last=longest)
        self._at = 0.0

    def failed(self) -> None:
        """It failed once more."""
        self._at = time.monotonic() + self._backoff.after_failure(lasted=0)

    def left(self) -> float:
        """Seconds until it is due."""
        return self._at - time.monotonic()


class Reconciler:
    """Keeps the annotations of one node's pods equal to kubelet's allocations."""

    def __init__(
        self,
        state: NodeState,
        kubelet: PodResourcesClient,
        kube: KubeClient,
        events: Events,
        *,
        interval_seconds: float,
    ) -> None:
        self._state = state
        self._kubelet = kubelet
        self._kube = kube
        self._events = events
        self._interval_seconds = interval_seconds
        self._reading = asyncio.Lock()
        self._retries: dict[PodUid, _Retry] = {}
        self._without: dict[PodUid, bool] = {}  # started without devices: whether it was reported
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Compare after every Allocate and periodically, until cancelled."""
        while True:
            seen = self._state.grant_made.count
            pause = self._interval_seconds if await self.look() else SETTLE_SECONDS
            for retry in self._retries.values():
                pause = min(pause, max(retry.left(), SETTLE_SECONDS))
            if self._state.suspicious:
                pause = min(max(pause, RETRY_SECONDS), self._interval_seconds)
            await self._state.grant_made.beyond_or_after(seen, pause)
            await asyncio.sleep(SETTLE_SECONDS)  # kubelet notes a grant just after it was made

    async def look(self) -> bool:
        """Compare once; false where to look again soon.

        That is after a patch, and until kubelet has listed every allocation that was granted.
        """
        state = self._state
        known = set(state.forgotten)
        try:
            reported = await self.read()
        except PodResourcesError as error:
            log.warning("cannot read kubelet's allocations", why=str(error))
            return True
        for uid in state.forgotten - known:
            pod = state.pods[uid]
            log.warning(
                "kubelet has lost its record of the devices of a running pod; they stay reserved",
                pod=f"{pod.namespace}/{pod.name}",
            )
        self.synced.set()
        names, inherited = state.policy.names, state.inherited.pods
        given = CorrectionInput(
            state.inventory, state.matcher.tables, names, time.time_ns(), inherited
        )
        account = state.account()
        await self._report_missing(account)
        found = corrections(account, state.pods.values(), given)
        telemetry.DISAGREEMENTS.set(sum(bool(each.reason) for each in found))
        sent = await asyncio.gather(*map(self._correct, self._due(found)))
        return reported and not any(sent)

    def _due(self, found: list[Correction]) -> list[Correction]:
        """Those that have not failed a moment ago."""
        wrong = {each.uid for each in found}
        self._retries = {uid: retry for uid, retry in self._retries.items() if uid in wrong}
        return [
            each
            for each in found
            if each.uid not in self._retries or self._retries[each.uid].left() <= 0
        ]

    async def _report_missing(self, account: list[Held]) -> None:
        """Report each pod that runs without its share, once two comparisons have found it."""
        if self._state.suspicious:
            return
        found = started_without(account, self._state.pods.values(), self._state.policy.names)
        for uid in found & self._without.keys():
            if not self._without[uid]:
                pod = self._state.pods[uid]
                subject = Subject("Pod", pod.name, pod.namespace, uid)
                log.warning("without its share", pod=f"{pod.namespace}/{pod.name}")
                await self._events.event(subject, MISSING, WITHOUT_SHARE, kind=WARNING)
        self._without = {uid: uid in self._without for uid in found}

    async def read(self) -> bool:
        """Read kubelet's allocations into the state; false while one that was granted is missing.

        One after the other: an earlier answer never replaces a later one.

        Raises:
            PodResourcesError: kubelet does not answer.
        """
        async with self._reading:
            requested_at = self._state.settled_turn()
            held = await self._kubelet.list()
            return self._state.sync_from_kubelet(held, requested_at=requested_at)

    async def _correct(self, correction: Correction) -> bool:
        """Send the patch; false where it failed."""
        path = f"/api/v1/namespaces/{correction.namespace}/pods/{correction.name}"
        patch = {"metadata": {"uid": correction.uid, "annotations": dict(correction.annotations)}}
        try:
            await self._kube.patch(path, patch)
        except KubeError as error:
            log.warning("cannot patch", pod=correction.name, why=str(error))
            retry = self._retries.setdefault(correction.uid, _Retry(self._interval_seconds))
            retry.failed()
            return False
        self._retries.pop(correction.uid, None)
        if correction.reason:
            telemetry.CORRECTIONS.labels(correction.reason).inc()
            log.info("corrected", pod=correction.name, why=correction.message)
            subject = Subject("Pod", correction.name, correction.namespace, correction.uid)
            await self._events.event(subject, correction.reason, correction.message)
        return True
