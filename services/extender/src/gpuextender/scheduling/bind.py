"""bind: choose GPUs, reserve them, and write node and GPUs in one Binding.

::

    known by UID? ──yes──► on this node: already done       elsewhere: refuse
         │ no
    place ──refused──► reply with the reason, GPU by GPU
         │
    reserve ──► Binding (UID precondition, annotations) ──► done: keep until the watch confirms
                  │ 409, 404, 4xx: read the pod: bound as requested is done, others are forgotten
                  ▼ no answer in time: the reservation stays until the watch or its TTL reports

No lock is held during the write: other requests see the reservation in the ledger. Concurrent
requests for one UID share one attempt, which continues when they disconnect.

Not guaranteed: that no other extender allocates the same GPU at the same moment. The node's device
plugin decides that, and the losing pod is scheduled again.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Literal, get_args

import msgspec
import structlog
from structlog.contextvars import bind_contextvars

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.sentences import placement_sentence, request_words, sentence
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.nominated import node_beside, reserved_for_nominated
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.pod.requests import MOST_ANNOTATION_BYTES, annotation_bytes
from gpucore.wire.pod.spec import Pod, decode_pod
from gpuextender import metrics
from gpuextender.clock import unix_ns
from gpuextender.scheduling import binding
from gpuextender.scheduling.binding import BindingWriter, Recorder
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.messages import BindingArgs
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError

_UNBOUND: Final = frozenset(
    {AllocationState.NOMINATED, AllocationState.ASSUMED, AllocationState.RESERVED}
)

BindOutcome = Literal["bound", "already", "refused", "lost", "rejected", "unknown", "unreadable"]

NO_ROOM_IN_ANNOTATIONS: Final = (
    f"with those that record its GPUs the annotations of the pod have more than "
    f"{MOST_ANNOTATION_BYTES} bytes, so that the API server would refuse its status; use fewer"
)

log = structlog.get_logger(__name__)


class BindResult(msgspec.Struct, frozen=True):
    """The result of a bind.

    Attributes:
        error: for the scheduler; empty is success.
        fate: for metrics: ``lost`` the pod changed meanwhile, ``rejected`` by the API server,
            ``unknown`` the API server did not respond.
    """

    fate: BindOutcome
    error: str = ""


class Bind:
    """The bind call.

    Args:
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        state: State,
        api: KubeClient,
        recorder: Recorder,
        writer: BindingWriter,
        gangs: Gangs,
        *,
        rules: Rules,
        clock: Callable[[], int] = unix_ns,
    ) -> None:
        self._state, self._api, self._recorder, self._writer = state, api, recorder, writer
        self._gangs = gangs
        self._rules = rules
        self._clock = clock
        self._running: dict[PodUid, asyncio.Task[BindResult]] = {}
        for outcome in get_args(BindOutcome):  # a series that begins with binds has no increase
            metrics.BINDS.labels(outcome)

    async def bind(self, args: BindingArgs) -> BindResult:
        """Bind, or return the reason why not; shares a running attempt for the same pod."""
        uid = PodUid(args.pod_uid)
        task = self._running.get(uid)
        if task is not None:
            await asyncio.shield(task)
            return self._standing(args) or await self.bind(args)
        task = self._running[uid] = asyncio.create_task(self._attempt(uid, args))
        outcome = await asyncio.shield(task)
        metrics.BINDS.labels(outcome.fate).inc()
        return outcome

    async def settle(self) -> None:
        """Wait for every attempt that is under way."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def lost(self, allocation: Allocation) -> bool:
        """The API server has no Binding of an assumed pod; false where the pod cannot be read."""
        try:
            found = await self._read(allocation.namespace, allocation.name)
        except NotFoundError:
            return True
        except (KubeError, WireError) as error:
            log.info("pod not read", uid=allocation.uid, error=str(error))
            return False
        return found.uid != allocation.uid or not found.node

    async def _attempt(self, uid: PodUid, args: BindingArgs) -> BindResult:
        try:
            return await self._bind(args)
        finally:
            del self._running[uid]  # before the task is done: another request would not wait for it

    async def _bind(self, args: BindingArgs) -> BindResult:
        """One attempt, in a task of its own: every line it logs names pod and node."""
        pod = f"{args.pod_namespace}/{args.pod_name}"
        bind_contextvars(pod=pod, uid=args.pod_uid, node=args.node)
        try:
            pending = await self._asking(args)
        except (KubeError, WireError) as error:
            pending = BindResult("unreadable", str(error))
        if isinstance(pending, BindResult):
            return _logged(pending)
        outcome = _logged(self._standing(args) or await self._decide(pending, args))
        if outcome.error:
            self._recorder.warn(pending.pod, "GpuPlacementFailed", outcome.error)
        return outcome

    async def _asking(self, args: BindingArgs) -> UnscheduledPod | BindResult:
        """The pod that is meant: as known here, else as the API server has it.

        What was read is not entered into the ledger: the watch may have ended the pod since.
        """
        known = self._state.pending_pod(args.pod_namespace, args.pod_name, PodUid(args.pod_uid))
        if known is not None:
            return known
        try:
            pod = await self._read(args.pod_namespace, args.pod_name)
        except NotFoundError:
            return BindResult("lost", f"pod {args.pod_namespace}/{args.pod_name} not found")
        if pod.uid != args.pod_uid:
            return BindResult("lost", _other_uid(args, pod))
        return _bound(pod.node, args) if pod.node else self._state.saw(pod)

    async def _read(self, namespace: str, name: str) -> Pod:
        return decode_pod(await self._api.get(binding.pod_path(namespace, name)))

    def _standing(self, args: BindingArgs) -> BindResult | None:
        """The answer where the pod is bound already; ``None`` where it is still to be placed."""
        allocation = self._state.ledger.allocation(PodUid(args.pod_uid))
        if allocation is None or allocation.state in _UNBOUND:
            return None
        return _bound(allocation.placement.node, args)

    async def _decide(self, pending: UnscheduledPod, args: BindingArgs) -> BindResult:
        """Place and reserve; then write."""
        pod, node = pending.pod, NodeName(args.node)
        nominated = self._state.ledger.nomination(pod.uid)
        if nominated is not None and not (nominated.gang and nominated.placement.node == node):
            self._state.forget(pod.uid)  # placed anew, with what was reserved for it
        elif nominated is None and self._state.ledger.allocation(pod.uid) is not None:
            late = await self._check(
                pod, node, {}, "", error="the outcome of an earlier bind is unknown"
            )
            if late.fate != "rejected":
                return late
        if pending.pod_request is None:
            return await self._write(pod, node, {}, "")
        node_info = self._state.ledger.node(node)
        if node_info is None:
            return BindResult("refused", f"node {node} is not known")
        placement = self._placed(pending, pending.pod_request, node_info)
        if isinstance(placement, str):
            request = request_words(pending.pod_request, node_info.unit)
            return BindResult("refused", _no_place(pod, request, node, placement))
        allocation = self._state.assume(pod, placement, now_ns=self._clock())
        annotations = binding.annotations(
            allocation, pending.pod_request, self._state.names, node_info
        )
        if annotation_bytes({**pod.annotations, **annotations}) > MOST_ANNOTATION_BYTES:
            self._state.forget(pod.uid)
            return BindResult("refused", NO_ROOM_IN_ANNOTATIONS)
        where = placement_sentence(placement, node_info.unit)
        return await self._write(pod, node, annotations, where)

    def _placed(
        self, pending: UnscheduledPod, pod_request: PodRequest, node_info: NodeInfo
    ) -> Placement | str:
        """Where the pod goes on this node, its gang's place first; or why it cannot."""
        kept = self._gangs.take(pending, pod_request, node_info.name)
        if kept is not None:
            return kept
        nominations = self._state.nominations
        held = reserved_for_nominated(nominations, node_info, pending.pod, pod_request)
        if held is not None:
            return sentence(held)
        # A pod that fits beside the nominated ones must not take the GPUs that they wait for.
        free = node_beside(node_info, nominations.before(node_info.name, pending.pod))
        found = place(free, pod_request, self._rules.policy, grouping=self._rules.grouping)
        return sentence(found) if isinstance(found, FitError) else found

    async def _write(
        self, pod: Pod, node: NodeName, annotations: dict[str, str], where: str
    ) -> BindResult:
        result = await self._writer.write(pod, node, annotations)
        if result.written:
            return self._done(pod, where)
        if result.silent:
            return BindResult("unknown", result.error)
        return await self._check(pod, node, annotations, where, error=result.error)

    async def _check(
        self, pod: Pod, node: NodeName, annotations: dict[str, str], where: str, *, error: str
    ) -> BindResult:
        """After a rejection read the pod: an earlier attempt of this process may have bound it."""
        reserved = self._state.ledger.allocation(pod.uid) is not None
        try:
            found = await self._read(pod.namespace, pod.name)
        except NotFoundError:
            self._state.pod_gone(pod)
            return BindResult("lost", error)
        except (KubeError, WireError) as unreadable:
            return BindResult("unknown", f"{error}; then {unreadable}")
        if found.uid != pod.uid:
            self._state.pod_gone(pod)
            return BindResult("lost", error)
        if reserved and self._state.ledger.allocation(pod.uid) is None:
            return BindResult("lost", error)  # the watch has ended the pod since it was read
        self._state.pod_changed(found)
        if found.node == node and annotations.items() <= found.annotations.items():
            return self._done(pod, where)
        self._state.forget(pod.uid)
        return BindResult("lost" if found.node or found.terminating else "rejected", error)

    def _done(self, pod: Pod, where: str) -> BindResult:
        log.info("bound", where=where)
        if where:
            self._recorder.note(pod, "GpuPlaced", f"Placed: {where}")
        return BindResult("bound")


def _bound(node: NodeName, args: BindingArgs) -> BindResult:
    """The answer for a pod that is on a node already."""
    if node == args.node:
        return BindResult("already")
    return BindResult("lost", f"pod is already bound to node {node}")


def _no_place(pod: Pod, request: str, node: NodeName, reason: str) -> str:
    """The original's words, with what the pod requests for its specification, and the reason."""
    return (
        f"The node {node} can't place the pod {pod.name} in ns {pod.namespace},"
        f"and the pod spec is {request}: {reason}"
    )


def _logged(outcome: BindResult) -> BindResult:
    if outcome.error:
        log.warning("not bound", fate=outcome.fate, error=outcome.error)
    return outcome


def _other_uid(args: BindingArgs, pod: Pod) -> str:
    """The original's words."""
    return (
        f"The pod {args.pod_name} in ns {args.pod_namespace}'s uid is {pod.uid}, "
        f"and it's not equal with expected {args.pod_uid}"
    )
