"""Keeps the ResourceSlice of a node equal to its GPUs while the node offers claims.

One slice holds the pool of the node. Its generation grows with every change, also when the slice is
created again. An update names the version that it replaces, so a slice that changed meanwhile is
read again and never overwritten unseen.

The slice of an earlier plugin stays while this one has found no driver, or has not learned yet by
which API the node offers its GPUs. It takes no new claims once that lasts. A node that offers
devices has no slice, with or without a driver.
"""

import asyncio
import time
from typing import Final

import msgspec
import structlog

from gpucore.model.constraints import NO_SCHEDULE
from gpucore.node.claims.allocations import allocations
from gpucore.units import NodeName
from gpucore.wire.claim.resource_slices import (
    PATH,
    ResourceSlice,
    decode_slice,
    encode_slice,
    encode_update,
    with_taint_times,
)
from gpucore.wire.errors import WireError
from gpucore.wire.names import API_CLAIMS, API_DEVICES
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.dra.slices import SliceWatch, wanted_slice, without_new_claims
from gpudeviceplugin.state import NodeState
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import ConflictError, KubeError, NotFoundError, StatusError
from gpukube.rate_limiter import RateLimiter

log = structlog.get_logger()

DEBOUNCE_SECONDS: Final = 0.2
"""Changes within this time are one write."""
LOOK_SECONDS: Final = 10.0
"""Longest time between two comparisons of what is published with what should be."""
UNKNOWN_SECONDS: Final = 30.0
"""Time for driver and API server to answer after the start of the plugin, without a taint."""
WRITES_PER_SECOND: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class SlicePublisher:
    """Publishes the ResourceSlice of one node.

    Args:
        state: the GPUs, whether they are offered as claims, and what claims hold; every change of
            what to publish fires its ``outlook_changed``.
        watch: the Node object.
        slices: what the API server has.
        policy: name of the policy of a node whose label names none.
    """

    def __init__(
        self,
        state: NodeState,
        watch: NodeWatch,
        slices: SliceWatch,
        kube: KubeClient,
        *,
        policy: str = "binpack",
        unhealthy: str = NO_SCHEDULE,
    ) -> None:
        self._state, self._watch = state, watch
        self._slices, self._kube = slices, kube
        self._policy, self._unhealthy = policy, unhealthy
        self._backoff = Backoff(last=LONGEST_PAUSE_SECONDS)
        self._limiter = RateLimiter(burst=1, quiet=WRITES_PER_SECOND, busy=WRITES_PER_SECOND)
        self._failed_at = float("-inf")
        self._began = float("inf")

    async def run(self) -> None:
        """Publish after every change, until cancelled."""
        self._began = time.monotonic()
        while True:
            seen = self._state.outlook_changed.count
            try:
                await self._publish()
            except (KubeError, WireError) as error:
                await self._pause(error)
                continue
            await self._state.outlook_changed.beyond_or_after(seen, LOOK_SECONDS)
            await asyncio.sleep(DEBOUNCE_SECONDS)

    async def _pause(self, error: KubeError | WireError) -> None:
        now = time.monotonic()
        retry_after = error.retry_after if isinstance(error, StatusError) else 0.0
        pause = self._backoff.after_failure(lasted=now - self._failed_at, retry_after=retry_after)
        self._failed_at = now
        log.warning("cannot publish the ResourceSlice", why=str(error), again_in=round(pause, 2))
        await asyncio.sleep(pause)

    async def _publish(self) -> None:
        """Write what differs."""
        node = self._watch.node
        if node is None or not self._slices.known:
            return
        known = self._state.inventory.driver and self._state.api_chosen
        if not known and self._state.api != API_DEVICES:
            await self._taint()
            return
        wanted = self._wanted(node)
        for name in sorted(self._slices.slices):
            if wanted is None or name != wanted.name:
                await self._delete(name)
        if wanted is None:
            return
        present = self._slices.slices.get(wanted.name)
        if present is None:
            await self._create(wanted)
        elif not _same(wanted, present):
            await self._replace(wanted, present)

    async def _taint(self) -> None:
        """Keep new claims from GPUs of which this plugin has learned nothing for a while."""
        if time.monotonic() < self._began + UNKNOWN_SECONDS:
            return
        for present in list(self._slices.slices.values()):
            tainted = without_new_claims(present)
            if tainted.devices != present.devices:
                await self._replace(tainted, present)

    def _wanted(self, node: Node) -> ResourceSlice | None:
        if self._state.api != API_CLAIMS:
            return None
        gpus = self._state.inventory.gpus
        return wanted_slice(
            node,
            self._state.inventory,
            allocations(self._state.claims, NodeName(node.name), gpus),
            policy=self._policy,
            names=self._state.policy.names,
            unhealthy=self._unhealthy,
        )

    async def _create(self, wanted: ResourceSlice) -> None:
        new = msgspec.structs.replace(wanted, generation=self._slices.generation + 1)
        body = encode_slice(new)
        await self._turn()
        removals = self._slices.removals
        try:
            raw = await self._kube.post(PATH, body)
        except ConflictError:
            await self._read(wanted.name)
            raise
        self._slices.put_answer(decode_slice(raw), removals)

    async def _replace(self, wanted: ResourceSlice, present: ResourceSlice) -> None:
        if _fixed(wanted) != _fixed(present):
            await self._delete(present.name)
            await self._create(wanted)
            return
        new = msgspec.structs.replace(
            with_taint_times(wanted, present),
            generation=self._slices.generation + 1,
            resource_version=present.resource_version,
        )
        body = encode_update(new)
        await self._turn()
        removals = self._slices.removals
        try:
            raw = await self._kube.patch(f"{PATH}/{new.name}", body)
        except (ConflictError, NotFoundError):
            await self._read(new.name)
            raise
        self._slices.put_answer(decode_slice(raw), removals)

    async def _delete(self, name: str) -> None:
        await self._turn()
        try:
            await self._kube.delete(f"{PATH}/{name}")
        except NotFoundError:
            log.info("the ResourceSlice is deleted already", name=name)
        self._slices.drop(name)

    async def _read(self, name: str) -> None:
        """Take the slice as it is now; the caller's failure leads to another attempt."""
        removals = self._slices.removals
        try:
            raw = await self._kube.get(f"{PATH}/{name}")
        except NotFoundError:
            self._slices.drop(name)
            return
        self._slices.put_answer(decode_slice(raw), removals)

    async def _turn(self) -> None:
        """Wait for this process's next write."""
        await asyncio.sleep(self._limiter.turn(time.monotonic()))


def _fixed(found: ResourceSlice) -> tuple[str, str, str]:
    """The immutable fields, and the owner, which must be this Node object."""
    return found.driver, found.node, found.node_uid


def _same(wanted: ResourceSlice, present: ResourceSlice) -> bool:
    """The slices are equal apart from generation, version and times of taints."""
    timed = with_taint_times(wanted, present)
    ours = (timed.devices, timed.pool, timed.count)
    return ours == (present.devices, present.pool, present.count) and (
        _fixed(wanted) == _fixed(present)
    )
