"""The constraints of a pod and the state of a node as the API server writes them.

Read beside :mod:`gpucore.wire.pod.spec`, which keeps fifty thousand pods small: of a bound pod its
requests are needed (:func:`pod_requests`), of a pending pod everything (:func:`pod_constraints`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from gpucore.model.constraints import (
    CPU,
    CandidateNode,
    NodeSelectorTerm,
    PodConstraints,
    Requirement,
    Resources,
)
from gpucore.wire.errors import decoded
from gpucore.wire.kept import KEPT_LENGTH, kept_where
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod import spec as podspec
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import Amounts, counted
from gpucore.wire.tolerations import TolerationObject, toleration_of

KEPT_AMOUNTS: Final = KEPT_LENGTH // 2
"""Characters of the amounts of a pod whose sum is kept: some 20 amounts, 4 kB."""
SHARED_NAMES: Final = 16
"""Resources of a pod whose requests are kept."""
CLAIMS_UNSUPPORTED: Final = "resource claims"
"""Among the constraints that are not evaluated: :mod:`gpucore.claims` evaluates it."""
VOLUMES_UNSUPPORTED: Final = "volumes"
"""Likewise: a volume may exist in one zone or on one node only."""
_OF_WHOLE_PODS: Final = (CPU, "memory", "hugepages-")
"""Beginnings of the names of resources that a pod can request as a whole."""
_DURING_SCHEDULING: Final = {
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}
_Items = tuple[tuple[str, str | int | float], ...]
_Key = Annotated[str, msgspec.Meta(max_length=512)]


class _Port(msgspec.Struct, rename="camel", gc=False):
    host_port: int | None = None


class _Container(podspec.ContainerObject):
    ports: list[_Port] | None = None


class _Expression(msgspec.Struct, gc=False):
    key: _Key = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel", gc=False):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _Required(msgspec.Struct, rename="camel", gc=False):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct, rename=_DURING_SCHEDULING, gc=False):
    required: _Required | None = None
    preferred: list[podspec.Present] | None = None


class _PodAffinity(msgspec.Struct, rename=_DURING_SCHEDULING, gc=False):
    required: list[podspec.Present] | None = None
    preferred: list[podspec.Present] | None = None


class _Affinity(msgspec.Struct, rename="camel", gc=False):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Spread(msgspec.Struct, rename="camel", gc=False):
    when_unsatisfiable: str = ""


class _Volume(msgspec.Struct, rename="camel", gc=False):
    """The kinds of volume that can keep a pod from a node."""

    persistent_volume_claim: podspec.Present | None = None
    ephemeral: podspec.Present | None = None
    gce_persistent_disk: podspec.Present | None = None
    aws_elastic_block_store: podspec.Present | None = None
    azure_disk: podspec.Present | None = None
    cinder: podspec.Present | None = None
    iscsi: podspec.Present | None = None
    rbd: podspec.Present | None = None
    csi: podspec.Present | None = None


_NO_VOLUME: Final = _Volume()


class _Spec(podspec.SpecObject):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    node_selector: dict[_Key, _Key] | None = None
    affinity: _Affinity | None = None
    tolerations: list[TolerationObject] | None = None
    topology_spread_constraints: list[_Spread] | None = None
    volumes: list[_Volume] | None = None


_NOTHING: Final = msgspec.Raw(b"null")


class _Status(podspec.StatusObject):
    observed_generation: int = 0
    container_statuses: msgspec.Raw = _NOTHING
    init_container_statuses: msgspec.Raw = _NOTHING
    allocated_resources: Amounts | None = None
    resources: podspec.PodResources | None = None


class ConstrainedPodObject(podspec.PodObject):
    """A pod in the nesting of the API, with its constraints; :func:`flat` makes it a pod."""

    spec: _Spec | None = None
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(ConstrainedPodObject)


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Read one pod object with its constraints.

    Raises:
        WireError: the bytes are no pod of the Kubernetes API.
    """
    return flat(decoded(_DECODER, raw, "no pod"))


def flat(pod: ConstrainedPodObject) -> Pod:
    """The narrow value of a nested pod, with its constraints.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such a pod).
    """
    return podspec.flat(pod, _constraints(pod))


def pod_constraints(raw: bytes | msgspec.Raw, names: Names) -> PodConstraints:
    """What a pod object requires of its node besides the resources of ``names``.

    Raises:
        WireError: the bytes are no pod of the Kubernetes API.
    """
    whole = all_constraints(raw)
    ours = _ours(names)
    others = tuple(one for one in whole.requests if one[0] not in ours)
    return msgspec.structs.replace(whole, requests=others)


def all_constraints(raw: bytes | msgspec.Raw) -> PodConstraints:
    """What a pod object requires of its node, the requests of every resource included.

    Raises:
        WireError: the bytes are no pod of the Kubernetes API.
    """
    return _constraints(decoded(_DECODER, raw, "no pod"))


def _constraints(pod: ConstrainedPodObject) -> PodConstraints:
    spec, resized = pod.spec or _Spec(), pod.status if _is_resized(pod) else None
    return PodConstraints(
        node_selector=tuple(sorted(spec.node_selector.items())) if spec.node_selector else (),
        affinity=_required(spec.affinity),
        tolerations=tuple(map(toleration_of, spec.tolerations or ())),
        requests=_requests(spec) if resized is None else _resized(spec, resized),
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
        unsupported=tuple(_unsupported(spec)),
        preferences=tuple(_preferences(spec)),
    )


def candidate_node(node: Node, bound: Iterable[Resources]) -> CandidateNode:
    """A node with the requests of the pods that are bound to it.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such a node).
    """
    requested: dict[str, int] = {}
    pods = 0
    for requests in bound:
        pods += 1
        for name, added in requests:
            requested[name] = requested.get(name, 0) + added
    return CandidateNode(
        name=node.name,
        labels=node.labels,
        taints=node.taints,
        unschedulable=node.unschedulable,
        ready=node.ready,
        allocatable={name: _amount(name, text) for name, text in node.allocatable.items()},
        requested=requested,
        pods=pods,
    )


def _required(affinity: _Affinity | None) -> tuple[NodeSelectorTerm, ...] | None:
    node = affinity.node_affinity if affinity else None
    if node is None or node.required is None:
        return None
    return tuple(
        NodeSelectorTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in node.required.node_selector_terms or ()
    )


def _requirements(expressions: Iterable[_Expression] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, e.operator, tuple(e.values or ())) for e in expressions or ())


def pod_requests(pod: Pod, names: Names) -> Resources:
    """What a pod requests besides the resources of ``names``, as kube-scheduler counts.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such a pod).
    """
    containers = [{**each.limits, **each.requests} for each in pod.containers]
    inits = [({**each.limits, **each.requests}, each.is_sidecar) for each in pod.init_containers]
    return _total(containers, inits, pod.requests, pod.overhead, _ours(names))


def _requests(spec: _Spec) -> Resources:
    containers = [podspec.requested(each.resources) for each in spec.containers or ()]
    inits = [
        (podspec.requested(each.resources), each.restart_policy == "Always")
        for each in spec.init_containers or ()
    ]
    return _total(containers, inits, podspec.requested(spec.resources), spec.overhead or {})


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    reason: str | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    allocated_resources: Amounts | None = None
    resources: podspec.PodResources | None = None


_RESIZES: Final = re.compile(rb'"PodResize').search
"""Conditions that kubelet sets while it resizes a pod."""
_CONDITIONS: Final = msgspec.json.Decoder(list[_Condition] | None)
_STATUSES: Final = msgspec.json.Decoder(list[_ContainerStatus] | None)


def _is_resized(pod: ConstrainedPodObject) -> bool:
    """Whether kubelet resizes the pod in place, or has not seen yet that it is to do so."""
    meta, status = pod.metadata, pod.status
    generation = meta.generation - (meta.deletion_timestamp is not None)  # deletion counts as one
    if generation <= 1 or status is None:
        return False
    return status.observed_generation < generation or bool(_RESIZES(status.conditions))


def _resized(spec: _Spec, status: _Status) -> Resources:
    """The largest of what is requested, allocated and in effect, as kube-scheduler counts it."""
    conditions = decoded(_CONDITIONS, status.conditions, "no conditions") or ()
    refused = any(one == _Condition("PodResizePending", "Infeasible") for one in conditions)
    lists = (status.container_statuses, status.init_container_statuses)
    found = [each for raw in lists for each in decoded(_STATUSES, raw, "no statuses") or ()]
    statuses = {each.name: each for each in found}

    def amounts(container: _Container) -> tuple[Amounts, Amounts, Amounts]:
        known = statuses.get(container.name, _ContainerStatus())
        wanted = {} if refused else podspec.requested(container.resources)
        allocated = wanted if known.allocated_resources is None else known.allocated_resources
        actual = known.resources.requests if known.resources else None
        return wanted, allocated, allocated if actual is None else actual

    containers = [amounts(each) for each in spec.containers or ()]
    inits = [(amounts(i), i.restart_policy == "Always") for i in spec.init_containers or ()]
    own, overhead = _own(spec, status, refused=refused), spec.overhead or {}
    peak: dict[str, int] = {}
    for n in range(3):
        sums = _total(
            [c[n] for c in containers], [(i[n], stays) for i, stays in inits], own, overhead
        )
        _raise(peak, dict(sums))
    return tuple(sorted(peak.items()))


def _own(spec: _Spec, status: _Status, *, refused: bool) -> Amounts:
    """The largest requests of the pod as a whole, which Kubernetes resizes from 1.36 on."""
    wanted = podspec.requested(spec.resources)
    if not wanted or status.resources is None:
        return wanted
    actual, allocated = status.resources.requests or {}, status.allocated_resources or {}
    lists = ({} if refused else wanted, allocated, actual)
    names = {name for each in lists for name in each if name.startswith(_OF_WHOLE_PODS)}
    return {name: _largest(name, lists) for name in sorted(names)}


def _largest(name: str, lists: Iterable[Amounts]) -> str | int | float:
    texts = [each[name] for each in lists if name in each]
    return max(texts, key=lambda text: _amount(name, str(text)))


@lru_cache
def _ours(names: Names) -> frozenset[str]:
    return frozenset((names.gpu_mem, names.gpu_core, names.gpu, names.gpu_count))


def _total(
    containers: Iterable[Amounts],
    inits: Iterable[tuple[Amounts, bool]],
    own: Amounts,
    overhead: Amounts,
    omitted: frozenset[str] = frozenset(),
) -> Resources:
    """:func:`_sum` of values that can be compared."""
    return _sum(
        tuple([_items(each) for each in containers]),
        tuple([(_items(each), sidecar) for each, sidecar in inits]),
        _items(own),
        _items(overhead),
        omitted,
    )


def _items(texts: Amounts) -> _Items:
    return tuple(texts.items())


@kept_where(lambda *parts: len(str(parts)) <= KEPT_AMOUNTS)
def _sum(
    containers: tuple[_Items, ...],
    inits: tuple[tuple[_Items, bool], ...],
    own: _Items,
    overhead: _Items,
    omitted: frozenset[str],
) -> Resources:
    """The larger of the containers and each init container, and overhead.

    Args:
        containers: requests of each.
        inits: requests of each init container, and whether it is a sidecar.
        own: requests of the pod as a whole, which replace those of its containers.
        overhead: of its runtime class.
        omitted: resources that are left out.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for texts, sidecar in inits:
        amounts = _amounts(texts)
        if sidecar:
            _add(running, amounts)
            _raise(peak, {name: running[name] for name in amounts})
        else:
            _raise(peak, {name: amounts[name] + running.get(name, 0) for name in amounts})
    for texts in containers:
        _add(running, _amounts(texts))
    _raise(peak, running)
    peak.update(_amounts(own))
    _add(peak, _amounts(overhead))
    rest = (pair for pair in peak.items() if pair[1] and pair[0] not in omitted)
    return tuple(sorted(rest))


def are_short(requests: Resources) -> bool:
    """Whether requests are kept; those of odd pods would fill the memory."""
    return len(requests) <= SHARED_NAMES and sum(len(name) for name, _ in requests) <= KEPT_LENGTH


def _amounts(texts: _Items) -> dict[str, int]:
    return {name: _amount(name, str(text)) for name, text in texts}


def _amount(name: str, text: str) -> int:
    return counted(text, shift=3 if name == CPU else 0)


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, value in amounts.items():
        total[name] = total.get(name, 0) + value


def _raise(peak: dict[str, int], other: Mapping[str, int]) -> None:
    for name, value in other.items():
        peak[name] = max(peak.get(name, 0), value)


def _unsupported(spec: _Spec) -> Iterator[str]:
    affinity = spec.affinity or _Affinity()
    if affinity.pod_affinity and affinity.pod_affinity.required:
        yield "inter-pod affinity"
    if affinity.pod_anti_affinity and affinity.pod_anti_affinity.required:
        yield "inter-pod anti-affinity"
    spread = spec.topology_spread_constraints or ()
    if any(each.when_unsatisfiable == "DoNotSchedule" for each in spread):
        yield "topology spread constraints"
    if any(volume != _NO_VOLUME for volume in spec.volumes or ()):
        yield VOLUMES_UNSUPPORTED
    boxes = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(port.host_port for box in boxes for port in box.ports or ()):
        yield "host ports"
    if spec.resource_claims:
        yield CLAIMS_UNSUPPORTED


def _preferences(spec: _Spec) -> Iterator[str]:
    affinity = spec.affinity or _Affinity()
    if affinity.node_affinity and affinity.node_affinity.preferred:
        yield "preferred node affinity"
    if affinity.pod_affinity and affinity.pod_affinity.preferred:
        yield "preferred inter-pod affinity"
    if affinity.pod_anti_affinity and affinity.pod_anti_affinity.preferred:
        yield "preferred inter-pod anti-affinity"
    spread = spec.topology_spread_constraints or ()
    if any(each.when_unsatisfiable == "ScheduleAnyway" for each in spread):
        yield "topology spread with ScheduleAnyway"
