"""The body of a what-if question over HTTP, and the pods that it describes."""

from collections.abc import Container, Iterable
from typing import Annotated, Any, Final

import msgspec

from gpucore.accounting.claim_offers import ClaimSpecs, Key
from gpucore.kubescheduler.node_fit import daemon_pod_matches
from gpucore.model import ContainerRequest, PodRequest
from gpucore.model.constraints import (
    MOST_COMPARED,
    NO_SCHEDULE,
    CandidateNode,
    PodConstraints,
    Toleration,
)
from gpucore.simulate.manifests import DEFAULT_NAMESPACE, WorkloadPods, wanted_pods
from gpucore.simulate.whatif import NO_REQUEST, WhatIfPod
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.names import POLICY_NAMES, Names
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

NO_CLAIMS: Final = ClaimSpecs()
MOST_PODS: Final = 200
MOST_BYTES: Final = 128 * 1024
"""Of a question: a scheduler waits while it is decoded."""
LONGEST_NAME: Final = 253
"""Of Kubernetes objects; the document repeats the name of a pod for each replica."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class PodQuestion(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A pod that does not exist yet; ``replicas`` of them.

    Attributes:
        mem: units of GPU memory.
        core: percent of compute.
        gpus: exclusive GPUs.
        gpu_count: number of GPUs to spread ``mem`` and ``core`` over evenly.
        priority: of preemption, as ``spec.priority`` of a pod.
    """

    name: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
    mem: Amount = 0
    core: Amount = 0
    gpus: Amount = 0
    gpu_count: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    policy: str = ""
    priority: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] = 0
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MOST_PODS)] = 1


class WhatIfQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Pods in the order in which they would be scheduled: ``pods`` first, then ``manifests``.

    Attributes:
        manifests: Kubernetes objects: pods, or what creates pods (Deployment, Job and the like).
    """

    pods: Annotated[list[PodQuestion], msgspec.Meta(min_length=1, max_length=MOST_PODS)] = []
    manifests: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MOST_PODS)] = []


class Question(msgspec.Struct, frozen=True):
    """A decoded what-if request.

    Attributes:
        wanted: the manifests that create some of them.
    """

    whatif_pods: list[WhatIfPod]
    wanted: list[WorkloadPods]


class RequestedPods(msgspec.Struct, frozen=True):
    """The decoded body of a question, without the claims that its pods name."""

    pods: list[PodQuestion]
    wanted: list[WorkloadPods]

    @property
    def use_claims(self) -> bool:
        """Whether a pod has claims."""
        return any(each.pod.claims or each.pod.claim_templates for each in self.wanted)

    @property
    def claims(self) -> list[Key]:
        """Claims that pods name and that are not among the manifests."""
        keys = ((_namespace(w), name) for w in self.wanted for name in w.pod.claims)
        return list(dict.fromkeys(key for key in keys if key not in self._beside.claims))

    @property
    def templates(self) -> list[Key]:
        """Templates that pods name and that are not among the manifests."""
        keys = ((_namespace(w), name) for w in self.wanted for name in w.pod.claim_templates)
        return list(dict.fromkeys(key for key in keys if key not in self._beside.templates))

    @property
    def _beside(self) -> ClaimSpecs:
        return self.wanted[0].beside if self.wanted else NO_CLAIMS


def _namespace(wanted: WorkloadPods) -> str:
    return wanted.pod.namespace or DEFAULT_NAMESPACE


_QUESTION: Final = msgspec.json.Decoder(WhatIfQuestion)


def requested_pods(body: bytes, names: Names) -> RequestedPods:
    """What a question names.

    Args:
        body: a :class:`WhatIfQuestion` as JSON.

    Raises:
        WireError: the body is no such question.
    """
    if len(body) > MOST_BYTES:
        raise WireError(f"{len(body)} bytes are too many, the most is {MOST_BYTES}")
    try:
        question = _QUESTION.decode(body)
        wanted = wanted_pods(question.manifests, names)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(str(error)) from error
    count = sum(pod.replicas for pod in question.pods) + sum(max(w.replicas, 0) for w in wanted)
    if not count:
        raise WireError("there is no pod: give pods, or manifests that create pods")
    if count > MOST_PODS:
        raise WireError(f"{count} pods are too many, the most is {MOST_PODS}")
    for each in wanted:
        if each.per_node:
            only = "is evaluated by the command gpushare whatif only"
            raise WireError(f"{each.pod.name}: one pod for each node, of a DaemonSet, {only}")
        _check_names(each.pod)
        check_size(each.pod.name, each.constraints)
    return RequestedPods(question.pods, wanted)


def _check_names(pod: Pod) -> None:
    if max(len(pod.name), len(pod.scheduler_name)) > LONGEST_NAME:
        raise WireError(
            f"the names of a pod and of its scheduler have at most {LONGEST_NAME} characters"
        )


def question_of(requested: RequestedPods, names: Names, known: ClaimSpecs = NO_CLAIMS) -> Question:
    """The pods to place.

    Raises:
        WireError: a pod requests no GPU, or names a claim that is not known.
    """
    wanted = requested.wanted
    whatif_pods = [whatif_pod for pod in requested.pods for whatif_pod in _whatif_pods(pod)]
    whatif_pods += [
        whatif_pod for each in wanted for whatif_pod in whatif_pods_of(each, names, known)
    ]
    if len({whatif_pod.name for whatif_pod in whatif_pods}) < len(whatif_pods):
        raise WireError("names of pods must differ")
    return Question(whatif_pods, wanted)


def check_size(name: str, constraints: PodConstraints) -> None:
    """Refuse constraints whose comparison with one node would take too long for a server.

    Raises:
        WireError: they are too many.
    """
    if constraints.size > MOST_COMPARED:
        raise WireError(
            f"{name} has {constraints.size} labels, values and tolerations to compare with each "
            f"node; more than {MOST_COMPARED} are evaluated by the command gpushare only"
        )


def whatif_pods_of(
    wanted: WorkloadPods, names: Names, known: ClaimSpecs = NO_CLAIMS
) -> list[WhatIfPod]:
    """The pods of a manifest.

    Raises:
        WireError: they request nothing of GPUs, or a claim of theirs is not known.
    """
    pod_request = pod_request_of(wanted.pod, names)
    name = wanted.pod.name
    if pod_request is None and (specs := wanted.specs(known)):
        whatif_pod = WhatIfPod(
            name,
            NO_REQUEST,
            wanted.constraints,
            specs=specs,
            named=tuple((_namespace(wanted), claim) for claim in wanted.pod.claims),
            scheduler=wanted.pod.scheduler_name,
        )
        return _replicas(whatif_pod, wanted.replicas)
    if pod_request is None:
        resources = f"{names.gpu_mem}, {names.gpu_core} or {names.gpu}"
        raise WireError(
            f"{name} requests no GPU: no container has a limit of {resources};"
            f" add one under resources.limits, such as {names.gpu_mem}: 4"
        )
    gang = gang_of(wanted.pod) is not None
    whatif_pod = WhatIfPod(
        name,
        pod_request,
        wanted.constraints,
        gang,
        scheduler=wanted.pod.scheduler_name,
        priority=wanted.pod.priority,
    )
    return _replicas(_on_its_node(whatif_pod, wanted.pod.node), wanted.replicas)


def _on_its_node(whatif_pod: WhatIfPod, node: NodeName) -> WhatIfPod:
    """The pod on the node of its ``spec.nodeName``: no scheduler looks at cordon and taints."""
    if not node:
        return whatif_pod
    needs = whatif_pod.constraints
    any_node = Toleration(operator="Exists", effect=NO_SCHEDULE)
    needs = msgspec.structs.replace(needs, tolerations=(*needs.tolerations, any_node))
    return msgspec.structs.replace(whatif_pod, constraints=needs, node=node)


def check_nodes(whatif_pods: Iterable[WhatIfPod], nodes: Container[NodeName]) -> None:
    """Refuse pods that name a node which does not exist.

    Raises:
        WireError: one of them does.
    """
    for each in whatif_pods:
        if each.node and each.node not in nodes:
            shown = each.node[:LONGEST_NAME]
            raise WireError(f"{each.name}: the node {shown} of its spec.nodeName does not exist")


def pods_on_nodes(
    wanted: WorkloadPods, whatif_pods: list[WhatIfPod], nodes: Iterable[CandidateNode]
) -> list[WhatIfPod]:
    """The pods of a manifest; of a DaemonSet one for each node that it matches.

    Args:
        whatif_pods: as :func:`whatif_pods_of` has them.
        nodes: of the cluster.
    """
    if not wanted.per_node:
        return whatif_pods
    return [
        msgspec.structs.replace(each, name=f"{each.name}-{node.name}", node=node.name)
        for each in whatif_pods
        for node in nodes
        if daemon_pod_matches(node, each.constraints)
    ]


def _replicas(whatif_pod: WhatIfPod, count: int) -> list[WhatIfPod]:
    """``count`` equal pods, numbered from 0 where they are several."""
    if count == 1:
        return [whatif_pod]
    return [
        msgspec.structs.replace(whatif_pod, name=f"{whatif_pod.name}-{n}") for n in range(count)
    ]


def _whatif_pods(pod: PodQuestion) -> list[WhatIfPod]:
    if pod.policy and pod.policy not in POLICY_NAMES:
        raise WireError(f"policy must be one of {', '.join(POLICY_NAMES)}")
    if not (pod.mem or pod.core or pod.gpus):
        raise WireError(f"pod {pod.name!r} requests nothing: set mem, core or gpus")
    if pod.gpus and (pod.mem or pod.core):
        raise WireError(f"pod {pod.name!r} requests both exclusive GPUs and shares")
    pod_request = PodRequest(
        containers=(ContainerRequest(pod.mem, pod.core, pod.gpus),),
        mem=pod.mem,
        core=pod.core,
        gpus=pod.gpus,
        gpu_count=pod.gpu_count,
        policy=pod.policy,
    )
    return _replicas(WhatIfPod(pod.name, pod_request, priority=pod.priority), pod.replicas)
