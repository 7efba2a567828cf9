"""bind: choose cards, reserve them, and write node and cards in one Binding.

::

    known by UID? ──yes──► on this node: already done       elsewhere: refuse
         │ no
    place ──refused──► say why, card by card
         │
    reserve ──► Binding (UID precondition, annotations) ──► done: keep until the watch confirms
                  │ 409, 404, 4xx: read the pod: bound as asked is done, anything else is forgotten
                  ▼ no answer in time: the reservation stays until the watch or its TTL tells

Nothing is locked while the write is under way: the reservation in the ledger is what others see.
Requests for one UID that come together share one attempt, and it goes on when they are gone.

Not promised: that another extender did not give the same card away in the same moment. The node's
device plugin is the arbiter of that, and the loser is placed again.
"""

import asyncio
from collections.abc import Callable
from time import time_ns
from typing import Literal

import msgspec
import structlog
from structlog.contextvars import bind_contextvars

from gpucore.account import NodeAccount
from gpucore.explain import placement_sentence, request_words, sentence
from gpucore.grouping import Grouping
from gpucore.model import ClaimState, Demand, Placement, Refusal
from gpucore.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.pods import Pod, decode_pod
from gpuextender import binding, metrics
from gpuextender.binding import Writer
from gpuextender.events import Recorder
from gpuextender.gangs import Gangs
from gpuextender.messages import BindingArgs
from gpuextender.state import Asking, State
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError

Fate = Literal["bound", "already", "refused", "lost", "rejected", "unknown", "unreadable"]

log = structlog.get_logger(__name__)


class Outcome(msgspec.Struct, frozen=True):
    """What became of a bind.

    Attributes:
        error: for the scheduler; empty is success.
        fate: for metrics: ``lost`` the pod changed under us, ``rejected`` the API server said no,
            ``unknown`` it did not answer.
    """

    fate: Fate
    error: str = ""


class Bind:
    """The verb.

    Args:
        policy: card choice where neither pod nor node says.
        grouping: how cards that go together are chosen.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        state: State,
        api: KubeClient,
        recorder: Recorder,
        writer: Writer,
        gangs: Gangs,
        *,
        policy: str,
        grouping: Grouping,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        self._state, self._api, self._recorder, self._writer = state, api, recorder, writer
        self._gangs = gangs
        self._policy = policy
        self._grouping = grouping
        self._clock = clock
        self._running: dict[PodUid, asyncio.Task[Outcome]] = {}

    async def answer(self, args: BindingArgs) -> Outcome:
        """Bind, or say why not; shares an attempt that is under way for the same pod."""
        uid = PodUid(args.pod_uid)
        task = self._running.get(uid)
        if task is not None:
            await asyncio.shield(task)
            return self._standing(args) or await self.answer(args)
        task = asyncio.create_task(self._bind(args))
        self._running[uid] = task
        task.add_done_callback(lambda _: self._running.pop(uid, None))
        outcome = await asyncio.shield(task)
        metrics.BINDS.labels(outcome.fate).inc()
        return outcome

    async def settle(self) -> None:
        """Wait for every attempt that is under way."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _bind(self, args: BindingArgs) -> Outcome:
        """One attempt, in a task of its own: every line it logs says pod and node."""
        pod = f"{args.pod_namespace}/{args.pod_name}"
        bind_contextvars(pod=pod, uid=args.pod_uid, node=args.node)
        try:
            asking = await self._asking(args)
        except (KubeError, WireError) as error:
            return Outcome("unreadable", str(error))
        if isinstance(asking, Outcome):
            return asking
        outcome = self._standing(args) or await self._decide(asking, args)
        if outcome.error:
            log.warning("not bound", fate=outcome.fate, error=outcome.error)
            self._recorder.warn(asking.pod, "GpuPlacementFailed", outcome.error)
        return outcome

    async def _asking(self, args: BindingArgs) -> Asking | Outcome:
        """The pod that is meant: as known here, else as the API server has it."""
        known = self._state.asking(args.pod_namespace, args.pod_name, PodUid(args.pod_uid))
        if known is not None:
            return known
        try:
            pod = await self._read(args.pod_namespace, args.pod_name)
        except NotFoundError:
            return Outcome("lost", f"pod {args.pod_namespace}/{args.pod_name} not found")
        if pod.uid != args.pod_uid:
            return Outcome("lost", _other_uid(args, pod))
        self._state.pod_changed(pod)
        return self._state.saw(pod)

    async def _read(self, namespace: str, name: str) -> Pod:
        return decode_pod(await self._api.get(binding.pod_path(namespace, name)))

    def _standing(self, args: BindingArgs) -> Outcome | None:
        """The answer where the pod is bound already; ``None`` where it is still to be placed."""
        claim = self._state.ledger.claim(PodUid(args.pod_uid))
        if claim is None or claim.state is ClaimState.ASSUMED:
            return None
        if claim.placement.node == args.node:
            return Outcome("already")
        return Outcome("lost", f"pod is already bound to node {claim.placement.node}")

    async def _decide(self, asking: Asking, args: BindingArgs) -> Outcome:
        """Place and reserve; then write."""
        pod, node = asking.pod, NodeName(args.node)
        if self._state.ledger.claim(pod.uid) is not None:
            late = await self._check(pod, node, {}, "", error="an earlier bind went unanswered")
            if late.fate != "rejected":
                return late
        if asking.demand is None:
            return await self._write(pod, node, {}, "")
        account = self._state.ledger.node(node)
        if account is None:
            return Outcome("refused", f"node {node} is not known")
        placement = self._placed(asking, asking.demand, account)
        if isinstance(placement, str):
            return Outcome("refused", _no_place(pod, asking.demand, node, placement))
        claim = self._state.assume(pod, placement, now_ns=self._clock())
        annotations = binding.annotations(claim, asking.demand, self._state.names, account)
        where = placement_sentence(placement, account.unit)
        return await self._write(pod, node, annotations, where)

    def _placed(self, asking: Asking, demand: Demand, account: NodeAccount) -> Placement | str:
        """Where the pod goes on this node, its gang's place first; or why it cannot."""
        kept = self._gangs.take(asking, demand, account.name)
        if kept is not None:
            return kept
        held = self._state.nominations.refusal(account, asking.pod, demand)
        if held is not None:
            return f"{sentence(held[0])}; {held[1]}"
        found = place(account, demand, self._policy, grouping=self._grouping)
        return sentence(found) if isinstance(found, Refusal) else found

    async def _write(
        self, pod: Pod, node: NodeName, annotations: dict[str, str], where: str
    ) -> Outcome:
        result = await self._writer.write(pod, node, annotations)
        if result.written:
            return self._done(pod, where)
        if result.silent:
            return Outcome("unknown", result.error)
        return await self._check(pod, node, annotations, where, error=result.error)

    async def _check(
        self, pod: Pod, node: NodeName, annotations: dict[str, str], where: str, *, error: str
    ) -> Outcome:
        """The API server said no: an earlier try of ours may be why, the pod itself tells."""
        try:
            found = await self._read(pod.namespace, pod.name)
        except NotFoundError:
            self._state.pod_gone(pod)
            return Outcome("lost", error)
        except (KubeError, WireError) as unreadable:
            return Outcome("unknown", f"{error}; then {unreadable}")
        if found.uid != pod.uid:
            self._state.pod_gone(pod)
            return Outcome("lost", error)
        self._state.pod_changed(found)
        if found.node == node and annotations.items() <= found.annotations.items():
            return self._done(pod, where)
        self._state.forget(pod.uid)
        return Outcome("lost" if found.node or found.terminating else "rejected", error)

    def _done(self, pod: Pod, where: str) -> Outcome:
        log.info("bound", where=where)
        if where:
            self._recorder.note(pod, "GpuPlaced", f"Placed: {where}")
        return Outcome("bound")


def _no_place(pod: Pod, demand: Demand, node: NodeName, reason: str) -> str:
    """The original's words, with what the pod requests for its specification, and the reason."""
    return (
        f"The node {node} can't place the pod {pod.name} in ns {pod.namespace},"
        f"and the pod spec is {request_words(demand)}: {reason}"
    )


def _other_uid(args: BindingArgs, pod: Pod) -> str:
    """The original's words."""
    return (
        f"The pod {args.pod_name} in ns {args.pod_namespace}'s uid is {pod.uid}, "
        f"and it's not equal with expected {args.pod_uid}"
    )
