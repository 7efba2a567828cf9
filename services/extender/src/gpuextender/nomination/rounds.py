"""When pods are nominated, and that one process of several replicas does it.

Rounds follow each other while there is something to do. The extender beside the leading scheduler
has them; it first adopts what an earlier leader wrote. One that leads no more forgets what it
reserved and clears nothing: these nominations are the next leader's.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

import msgspec
import structlog

from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.units import NodeName, PodUid
from gpuextender.health import Readiness
from gpuextender.nomination.nominator import Nominator
from gpuextender.nomination.writes import version_written_by_us
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError

PAUSE_SECONDS: Final = 0.05
PAUSE_TIMES: Final = 2.0
"""A round that takes long is followed by a pause of so many times its length."""
NEVER: Final = float("inf")
FRESH_SECONDS: Final = 1.0
"""The Lease is read again after this time, where it is needed."""
LOOK_SECONDS: Final = 10.0
"""Nominations of an earlier leader may come by the watch this long after this one began."""
OLDEST: Final = (1, 22)

log = structlog.get_logger(__name__)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    spec: _Spec


class Leadership:
    """Whether the kube-scheduler beside this process leads: it holds the Lease of its election.

    kube-scheduler holds the Lease as ``<hostname>_<UUID>``, and containers of one pod have one
    hostname and one clock. No other scheduler takes the Lease before it ends or is given up.

    Args:
        lease: namespace and name of the Lease, separated by a slash; empty where no scheduler is
            elected: then this process always leads.
        host: hostname of this pod.
        now: seconds of a steady clock.
        clock: the time of day.

    Attributes:
        term: another number each time another scheduler has taken the Lease.
    """

    def __init__(
        self,
        api: KubeClient,
        *,
        lease: str,
        host: str,
        now: Callable[[], float],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        namespace, _, name = lease.partition("/")
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._api, self._elected, self._host = api, bool(lease), host
        self._now, self._clock = now, clock
        self._read_at = self._answered_at = self._until = float("-inf")
        self.term = 0

    async def leads(self) -> bool:
        """The scheduler beside this process holds the Lease.

        As of a second ago at most, or longer while the Lease cannot be read, but never beyond its
        end: another scheduler may hold it from then on.
        """
        if not self._elected:
            return True
        unanswered = self._answered_at < self._read_at
        if self._now() - self._read_at >= FRESH_SECONDS or (
            unanswered and self._until <= self._read_at  # of before, nothing is known either
        ):
            await self._read()
        return self._now() < self._until

    async def led_term(self) -> int | None:
        """The term in which this process leads; ``None`` while it does not."""
        return self.term if await self.leads() else None

    async def _read(self) -> None:
        """Read the Lease; of several reads at a time, the one that began last counts."""
        begin = self._read_at = self._now()
        spec = await self._get()
        if begin < self._answered_at:
            return
        self._answered_at = begin
        if spec is not None:
            self._until = self._now() + self._left(spec)

    async def _get(self) -> _Spec | None:
        """That of the Lease, empty where there is no Lease; ``None`` where it cannot be read."""
        try:
            return msgspec.json.decode(await self._api.get(self._path), type=_Lease).spec
        except NotFoundError:
            return _Spec()
        except (KubeError, msgspec.MsgspecError) as error:
            log.info("lease not read", error=str(error))
            return None

    def _left(self, spec: _Spec) -> float:
        """Seconds for which the scheduler beside this process still holds the Lease."""
        if not (spec.holder_identity or "").startswith(f"{self._host}_"):
            return 0.0
        self.term = spec.lease_transitions or 0
        lasts = timedelta(seconds=spec.lease_duration_seconds or 0)
        if spec.renew_time is None:
            return 0.0
        return min(spec.renew_time + lasts - self._clock(), lasts).total_seconds()


class Adoption:
    """Nominations that are on the API server when this process begins to nominate.

    They are of an extender that led before, of this one before a restart, or of kube-scheduler,
    which nominates a node where it evicts pods. ``metadata.managedFields`` names the writer of the
    field; a tenant cannot write the status of a pod. What an extender wrote is adopted: reserved
    again where it still fits, cleared where it does not. All others stay as they are.

    Args:
        adopt: called with each pod and the node that an extender wrote for it.
        now: seconds of a steady clock.
    """

    def __init__(
        self,
        state: State,
        api: KubeClient,
        adopt: Callable[[UnscheduledPod, NodeName], object],
        now: Callable[[], float],
    ) -> None:
        self._state, self._api, self._adopt, self._now = state, api, adopt, now
        self._until, self._complete = float("-inf"), True
        self._seen: set[tuple[PodUid, NodeName]] = set()

    def begin(self) -> None:
        """This process nominates from now on."""
        self._until = self._now() + LOOK_SECONDS
        self._seen.clear()

    async def look(self) -> float:
        """Adopt what was written by extenders before this process began to nominate.

        Returns:
            Seconds until the next look at pods that could not be read, infinite for none.
        """
        if self._complete and self._now() > self._until:
            return NEVER
        self._complete = True
        for one in self._state.nominations.pods():
            pending = self._state.find(one.namespace, one.name)
            if pending is None or pending.pod.uid != one.uid:
                continue
            key = one.uid, pending.pod.nominated
            if key not in self._seen:
                try:
                    ours = await version_written_by_us(self._api, pending.pod)
                except KubeError as error:
                    self._complete = False
                    log.info(
                        "nomination not read", pod=f"{one.namespace}/{one.name}", error=str(error)
                    )
                    continue
                self._seen.add(key)
                if ours:
                    self._adopt(pending, pending.pod.nominated)
        return NEVER if self._complete else FRESH_SECONDS


class _Version(msgspec.Struct):
    major: str = ""
    minor: str = ""


async def evaluates_nominated_first(api: KubeClient) -> bool:
    """Whether kube-scheduler evaluates the nominated node first: Kubernetes 1.22 and later.

    The version is that of the API server, which kube-scheduler has too; unknown counts as new.
    """
    try:
        found = msgspec.json.decode(await api.get("/version"), type=_Version)
        version = int(found.major), int(found.minor.rstrip("+"))
    except (KubeError, msgspec.MsgspecError, ValueError) as error:
        log.warning("version of the API server not read", error=str(error))
        return True
    if version < OLDEST:
        log.warning("no pods are nominated before Kubernetes 1.22", version=version)
    return version >= OLDEST


class NominationRounds:
    """The rounds of one process; :meth:`run` works for ever.

    Args:
        now: seconds of a steady clock.
    """

    def __init__(
        self,
        nominator: Nominator,
        health: Readiness,
        leadership: Leadership,
        adoption: Adoption,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._nominator, self._health = nominator, health
        self._leadership, self._adoption, self._now = leadership, adoption, now
        self._term: int | None = None

    async def run(self) -> None:
        """Nominate for ever."""
        woken = self._nominator.woken
        while True:
            await woken.wait()
            woken.clear()
            begin = self._now()
            pause = FRESH_SECONDS if self._health.obstacle() else await self.round()
            if pause < NEVER:
                asyncio.get_running_loop().call_later(pause, woken.set)
            await asyncio.sleep(max(PAUSE_SECONDS, PAUSE_TIMES * (self._now() - begin)))

    async def round(self) -> float:
        """One round where this process leads; seconds until the next one, infinite for none."""
        if await self._leads():
            again = await self._adoption.look()
            return min(again, await self._nominator.round())
        return FRESH_SECONDS if self._nominator.due() else NEVER

    async def _leads(self) -> bool:
        leads = await self._leadership.leads()
        term = self._leadership.term if leads else None
        if self._term not in {None, term}:
            self._nominator.ends.resign()
            self._term = None
        if leads and self._term is None:
            if await self._health.unconfirmed():
                return False  # what the last leader wrote may not have come by the watch
            self._adoption.begin()
            self._term = term
        return leads
