"""The admission webhook: checks pods before they exist, and gives them their scheduler.

Only what can never be right is refused. A request that is too large for every GPU is not such a
thing, because a larger node may come. Where the amount would fit if it were meant in MiB, the
author gets a warning, and the pod waits as it did with the original extender. A pod that requests
no GPU is refused only where it chooses GPUs by NVIDIA_VISIBLE_DEVICES. Pods of ``kube-system`` pass
untouched.

The webhook is optional and never in the way: its failure policy in the cluster is Ignore, and
filter refuses invalid requests too, only later. Variables that choose GPUs are refused by the
webhook, and from Kubernetes 1.30 on by the admission policy.
"""

import asyncio
import base64
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import Any, Final

import msgspec
from fastapi import FastAPI

from gpucore import VERSION
from gpucore.accounting.claim_offers import only_claims_exclusive
from gpucore.accounting.node_info import NodeInfo
from gpucore.claims.convert import ClaimRequests, convert
from gpucore.model import PodRequest
from gpucore.scheduling.cluster_policy import (
    UNSET_NAMES,
    BurstSwitch,
    ReviewedPods,
    SchedulerProfiles,
    burst_pays,
)
from gpucore.scheduling.pending_pods import awaits_first_try
from gpucore.units import MIB
from gpucore.wire.errors import WireError, decoded, has_more_values
from gpucore.wire.names import Names
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.overrides import overrides
from gpucore.wire.pod.requests import gpu_request_of
from gpucore.wire.pod.spec import Container, Pod, decode_pod_object, flat
from gpucore.wire.quantity import counted
from gpuextender import metrics
from gpuextender.health import Readiness
from gpuextender.scheduling.messages import NOTHING, MessageError, given
from gpuextender.sizing.sizer import PodSizer
from gpuextender.state import State
from gpukube.server.direct import Handler, HttpReply, endpoint

EXEMPT: Final = "kube-system"
DEFAULT_SCHEDULER: Final = "default-scheduler"
NVIDIA_GPU: Final = "nvidia.com/gpu"
MOST_CONTAINERS: Final = 1000
"""Containers of a pod that is reviewed: a review takes time for each, and other reviews wait."""
MOST_VALUES: Final = 2 << 20
"""Strings, arrays and objects of a review, which take time and memory when they are decoded.

An object has at most 1.5 MiB in etcd, where three bytes hold two of them at most. A review has an
old object and a new one."""
LARGE_BYTES: Final = 1 << 20
"""Of a review that may take long: probes and smaller reviews are answered between two of them."""


class AdmissionAnswer(msgspec.Struct, frozen=True):
    """The verdict of the webhook about a pod.

    Attributes:
        refusal: why it is refused; empty lets it pass.
        scheduler: name to set; empty leaves it.
        warnings: for its author, about who places the pod.
        unit_hint: another, about the unit that its author may have meant; empty is none.
        changes: JSON patch that turns its share into a claim, or gives it another size.
        resized: the changes are those of its size.
    """

    refusal: str = ""
    scheduler: str = ""
    warnings: tuple[str, ...] = ()
    unit_hint: str = ""
    changes: tuple[Mapping[str, Any], ...] = ()
    resized: bool = False


class SchedulerChoice:
    """The scheduler of new pods: a profile that compares all nodes, or few while many pods wait.

    Every process of the webhook counts the pending pods of the cluster by its own watch, so that
    several processes choose alike.

    Args:
        known: whether what is known of the cluster is current.
    """

    def __init__(
        self, state: State, profiles: SchedulerProfiles, known: Callable[[], bool]
    ) -> None:
        self._state, self.profiles, self._known = state, profiles, known
        self._switch, self._reviewed = BurstSwitch(profiles), ReviewedPods()

    def scheduler(self, pod: Pod) -> str:
        """Name of the profile for a pod that names no scheduler; empty for none.

        The pods of a gang are planned on all nodes, and with one name.
        """
        if not self.profiles.switches or gang_of(pod) is not None or not self._known():
            return self.profiles.exact
        queued = self._state.queued(self.profiles.names)
        queued += self._reviewed.count(self._state.shown(), monotonic())
        if not self._switch.on(queued) or not burst_pays(self._state.ledger.nodes().values()):
            return self.profiles.exact
        return self.profiles.burst

    def given(self, pod: Pod) -> None:
        """The pod is about to be created, for this scheduler to try."""
        if self.profiles.switches and awaits_first_try(pod):
            self._reviewed.add(monotonic())


def review_pod(
    pod: Pod,
    *,
    namespace: str,
    node_infos: Collection[NodeInfo],
    names: Names,
    choice: SchedulerChoice,
) -> AdmissionAnswer:
    """Review a pod that is about to be created.

    Args:
        namespace: of the request; the object may lack it.
        node_infos: state of all nodes; none while it is unknown.
        choice: of the scheduler that calls this extender.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    if namespace == EXEMPT:
        return AdmissionAnswer()
    pod_request = gpu_request_of(pod, names)
    containers = (*pod.containers, *pod.init_containers)
    if refusal := override_refusal(containers, requests_gpus=pod_request is not None):
        return AdmissionAnswer(refusal=refusal)
    if pod_request is None:
        return AdmissionAnswer()
    if refusal := _refusal(pod, pod_request, names):
        return AdmissionAnswer(refusal=refusal)
    if _served_by_claims(pod_request, node_infos):
        return AdmissionAnswer()
    unit_hint = _unit_mistake(pod_request, node_infos, names)
    return msgspec.structs.replace(_steered(pod, choice), unit_hint=unit_hint)


def _served_by_claims(pod_request: PodRequest, node_infos: Iterable[NodeInfo]) -> bool:
    """The pod requests exclusive GPUs, and its own scheduler allocates them."""
    if not pod_request.gpus or pod_request.mem or pod_request.core:
        return False
    return only_claims_exclusive(node_infos)


def _steered(pod: Pod, choice: SchedulerChoice) -> AdmissionAnswer:
    """The scheduler to set, or a warning where the pod names another."""
    names = choice.profiles.names
    if not names or pod.node or pod.scheduler_name in names:
        return AdmissionAnswer()
    if pod.scheduler_name in UNSET_NAMES:
        return AdmissionAnswer(scheduler=choice.scheduler(pod))
    warning = (
        f"scheduler {pod.scheduler_name} places this pod: "
        f"unless it calls the gpushare extender, use {choice.profiles.exact}"
    )
    return AdmissionAnswer(warnings=(warning,))


def review_debug_containers(
    pod: Pod, before: Pod | None, *, namespace: str, names: Names
) -> AdmissionAnswer:
    """Look at a pod to which an ephemeral container is added.

    Args:
        before: the pod without it; ephemeral containers cannot be changed or removed.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    if namespace == EXEMPT:
        return AdmissionAnswer()
    requests_gpus = gpu_request_of(pod, names) is not None
    earlier = {each.name for each in before.ephemeral_containers} if before else set[str]()
    added = [each for each in pod.ephemeral_containers if each.name not in earlier]
    return AdmissionAnswer(refusal=override_refusal(added, requests_gpus=requests_gpus))


def override_refusal(containers: Iterable[Container], *, requests_gpus: bool) -> str:
    """Why containers are refused that would choose their GPU or widen their limit."""
    for name, variables in overrides(containers, requests_gpus=requests_gpus).items():
        return (
            f"container {name}: sets {' and '.join(variables)}, "
            "which would bypass the share: remove it"
        )
    return ""


def _refusal(pod: Pod, pod_request: PodRequest, names: Names) -> str:
    if pod_request.fault:
        return pod_request.fault
    if pod_request.mem % pod_request.gpu_count or pod_request.core % pod_request.gpu_count:
        return (
            f"requests an amount that does not divide evenly over its {pod_request.gpu_count} GPUs"
        )
    limits = [each.limits for each in (*pod.containers, *pod.init_containers)]
    resources = (names.gpu_mem, names.gpu_core, names.gpu, NVIDIA_GPU)
    requested = {name for name in resources for each in limits if counted(each.get(name, "0"))}
    ours = requested - {NVIDIA_GPU}
    if ours and NVIDIA_GPU in requested:
        return f"requests {min(ours)} and {NVIDIA_GPU}, which would allocate GPUs twice: use one"
    return ""


def _unit_mistake(pod_request: PodRequest, node_infos: Iterable[NodeInfo], names: Names) -> str:
    """The amount is too large for every GPU, and would fit if it were meant in MiB.

    Most requests fit the first node, and no other node is looked at.
    """
    gpus = pod_request.gpu_count
    request = pod_request.mem // gpus
    largest, fitting = 0, 0
    for node_info in node_infos:
        largest = max(largest, node_info.shape.largest_gpu)
        if largest >= request:
            return ""
        if node_info.unit is not None and node_info.unit > MIB and request >= node_info.unit.mib:
            needed = node_info.unit.units_for(request)
            fitting = needed if needed <= node_info.shape.largest_gpu else fitting
    if largest and fitting:
        over = f" over {gpus} GPUs" if gpus > 1 else ""
        return (
            f"this pod requests {pod_request.mem} {names.gpu_mem}{over}, the largest GPU has "
            f"{largest}: if you meant MiB, request {fitting * gpus}"
        )
    return ""


def review_claims(
    pod: Pod, raw: msgspec.Raw, answer: AdmissionAnswer, how: ClaimRequests
) -> AdmissionAnswer:
    """The answer for a pod of a namespace whose shares are claims.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    if answer.refusal or pod.node:
        return answer
    found = convert(raw, how)
    if found.obstacle:
        warning = f"this share is not converted to a ResourceClaim: {found.obstacle}"
        return msgspec.structs.replace(answer, warnings=(*answer.warnings, warning))
    if found.template is None:
        return answer
    return AdmissionAnswer(changes=found.changes, unit_hint=answer.unit_hint)


def with_size(
    pod: Pod,
    raw: msgspec.Raw,
    answer: AdmissionAnswer,
    sizer: PodSizer,
    *,
    namespace: str,
    node_infos: Collection[NodeInfo],
) -> AdmissionAnswer:
    """The answer for a pod that may get the size that its workload was measured to need.

    Args:
        namespace: of the request.
        node_infos: state of all nodes; none while it is unknown.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    if answer.refusal or namespace == EXEMPT:
        return answer
    found = sizer.resized(pod, raw, namespace, node_infos)
    if not found.changes:
        own = (found.warning,) if found.warning else ()
        return msgspec.structs.replace(answer, warnings=(*answer.warnings, *own))
    return msgspec.structs.replace(answer, changes=found.changes, resized=True)


PATH: Final = "/admit"
CLAIMS_PATH: Final = "/admit-claims"
"""For pods whose shares become claims; the API server chooses by the label of the namespace."""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    namespace: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    object: msgspec.Raw = NOTHING
    old_object: msgspec.Raw = NOTHING


class _Review(msgspec.Struct):
    request: _Request


_REVIEW: Final = msgspec.json.Decoder(_Review)


class AdmissionWebhook:
    """Judges pods against what is known of the cluster.

    Args:
        profiles: of the scheduler to give pods of ours; none to leave them.
        claims: how shares become claims; ``None`` where they do not.
        sizer: gives pods their size; ``None`` to leave them.
    """

    def __init__(
        self,
        state: State,
        health: Readiness,
        *,
        profiles: SchedulerProfiles,
        claims: ClaimRequests | None = None,
        sizer: PodSizer | None = None,
    ) -> None:
        self._state, self._health, self._sizer = state, health, sizer
        self._choice = SchedulerChoice(state, profiles, lambda: not health.obstacle())
        self._claims = claims
        self._large = asyncio.Lock()

    def app(self) -> FastAPI:
        """An application of its own, because the webhook listens on its own port."""
        app = FastAPI(title="gpushare admission", version=VERSION, openapi_url=None)
        for path, handler in self.handlers().items():
            app.add_route(path, endpoint(handler), methods=["POST"])
        return app

    def handlers(self) -> dict[str, Handler]:
        """Handlers of reviews by path."""
        if self._claims is None:
            return {PATH: self.admit}
        return {PATH: self.admit, CLAIMS_PATH: self.admit_claims}

    async def admit(self, body: bytes) -> HttpReply:
        """Answer one review; 400 where it is none."""
        return await self._in_turn(body, None)

    async def admit_claims(self, body: bytes) -> HttpReply:
        """As :meth:`admit`, and shares become claims."""
        return await self._in_turn(body, self._claims)

    async def _in_turn(self, body: bytes, claims: ClaimRequests | None) -> HttpReply:
        with metrics.REVIEW_SECONDS.time():
            if len(body) < LARGE_BYTES:
                return self._reply(body, claims)
            async with self._large:
                await asyncio.sleep(0)
                return self._reply(body, claims)

    def _reply(self, body: bytes, claims: ClaimRequests | None) -> HttpReply:
        try:
            return HttpReply(msgspec.json.encode(self.review(body, claims)))
        except MessageError as error:
            return HttpReply(str(error).encode(), status=400, media_type="text/plain")

    def review(self, body: bytes, claims: ClaimRequests | None = None) -> dict[str, Any]:
        """The review with its response.

        Raises:
            MessageError: the body is no review of a pod.
        """
        if has_more_values(body, MOST_VALUES):
            raise MessageError(f"an AdmissionReview with more than {MOST_VALUES} values")
        try:
            request = decoded(_REVIEW, body, "no review").request
            answer = self._judge(request, claims)
        except WireError as error:
            raise MessageError(f"cannot decode AdmissionReview: {error}") from error
        metrics.ADMISSIONS.labels(_result(answer)).inc()
        return {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": request.uid, **_response(answer)},
        }

    def _judge(self, request: _Request, claims: ClaimRequests | None) -> AdmissionAnswer:
        if request.namespace == EXEMPT or not given(request.object):
            return AdmissionAnswer()
        found, names = decode_pod_object(request.object), self._state.names
        count = found.container_count
        if count > MOST_CONTAINERS:
            return AdmissionAnswer(refusal=f"has {count} containers, more than {MOST_CONTAINERS}")
        pod = flat(found)
        if request.sub_resource:
            old = request.old_object
            before = flat(decode_pod_object(old)) if given(old) else None
            return review_debug_containers(pod, before, namespace=request.namespace, names=names)
        answer = review_pod(
            pod,
            namespace=request.namespace,
            node_infos=self._node_infos(),
            names=names,
            choice=self._choice,
        )
        if answer.scheduler and not request.dry_run:
            self._choice.given(pod)
        if claims is None:
            return self._with_size(pod, request, answer)
        return review_claims(pod, request.object, answer, claims)

    def _with_size(self, pod: Pod, request: _Request, answer: AdmissionAnswer) -> AdmissionAnswer:
        if self._sizer is None:
            return answer
        return with_size(
            pod,
            request.object,
            answer,
            self._sizer,
            namespace=request.namespace,
            node_infos=self._node_infos(),
        )

    def _node_infos(self) -> Collection[NodeInfo]:
        """State to compare with; none while it is not current."""
        return () if self._health.obstacle() else self._state.ledger.nodes().values()


def _result(answer: AdmissionAnswer) -> str:
    if answer.refusal:
        return "refused"
    if answer.changes:
        return "resized" if answer.resized else "converted"
    return "steered" if answer.scheduler else "passed"


def _response(answer: AdmissionAnswer) -> dict[str, Any]:
    if answer.refusal:
        text = f"gpushare: {answer.refusal}"
        return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": text}}
    response: dict[str, Any] = {"allowed": True}
    if warnings := [each for each in (answer.unit_hint, *answer.warnings) if each]:
        response["warnings"] = warnings
    changes = list(answer.changes)
    if answer.scheduler:
        changes += [{"op": "add", "path": "/spec/schedulerName", "value": answer.scheduler}]
    if changes:
        patch = base64.b64encode(msgspec.json.encode(changes)).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return response
