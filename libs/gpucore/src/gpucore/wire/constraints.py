"""The constraints of a pod and the state of a node as the API server writes them.

Read beside :mod:`gpucore.wire.podspec`, which keeps fifty thousand pods small: of a bound pod its
requests are needed, of a pending pod everything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from gpucore.scheduling.constraints import (
    CPU,
    CandidateNode,
    NodeSelectorTerm,
    PodConstraints,
    Requirement,
    Resources,
    Toleration,
)
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.nodespec import Node
from gpucore.wire.quantity import amount, milli

_Quantities = dict[str, str | int | float]
_Key = Annotated[str, msgspec.Meta(max_length=512)]


class _Resources(msgspec.Struct, gc=False):
    limits: _Quantities | None = None
    requests: _Quantities | None = None


class _Port(msgspec.Struct, rename="camel", gc=False):
    host_port: int | None = None


class _Container(msgspec.Struct, rename="camel", gc=False):
    resources: _Resources | None = None
    restart_policy: str | None = None
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


class _NodeAffinity(msgspec.Struct, gc=False):
    required: _Required | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _PodAffinity(msgspec.Struct, gc=False):
    required: list[Any] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(msgspec.Struct, rename="camel", gc=False):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Toleration(msgspec.Struct, gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


class _Spread(msgspec.Struct, rename="camel", gc=False):
    when_unsatisfiable: str = ""


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[_Toleration] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: _Quantities | None = None
    resources: _Resources | None = None
    scheduling_gates: list[_Gate] | None = None
    topology_spread_constraints: list[_Spread] | None = None
    volumes: list[dict[str, Any]] | None = None
    resource_claims: list[Any] | None = None


class _Pod(msgspec.Struct, gc=False):
    spec: _Spec | None = None


_DECODER: Final = msgspec.json.Decoder(_Pod)


def pod_constraints(raw: bytes | msgspec.Raw, names: Names) -> PodConstraints:
    """What a pod object requires of its node besides the resources of ``names``.

    Raises:
        WireError: the bytes are no pod of the Kubernetes API.
    """
    try:
        spec = _DECODER.decode(raw).spec or _Spec()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"no pod: {error}") from error
    return PodConstraints(
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=_required(spec.affinity),
        tolerations=tuple(map(_toleration, spec.tolerations or ())),
        requests=_requests(spec, names),
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
        unsupported=tuple(_unsupported(spec)),
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
        for name, asked in requests:
            requested[name] = requested.get(name, 0) + asked
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


def _toleration(found: _Toleration) -> Toleration:
    return Toleration(
        key=found.key or "",
        operator=found.operator or "Equal",
        value=found.value or "",
        effect=found.effect or "",
    )


def _requests(spec: _Spec, names: Names) -> Resources:
    """Kube-scheduler's sum: the larger of the containers and each init container, and overhead."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        asked = _of(container.resources)
        if container.restart_policy == "Always":
            _add(running, asked)
            _raise(peak, running)
        else:
            _raise(peak, {name: asked.get(name, 0) + running.get(name, 0) for name in asked})
    for container in spec.containers or ():
        _add(running, _of(container.resources))
    _raise(peak, running)
    peak.update(_of(spec.resources))  # requests of the pod as a whole replace those of containers
    _add(peak, {name: _amount(name, str(text)) for name, text in (spec.overhead or {}).items()})
    ours = {names.gpu_mem, names.gpu_core, names.gpu, names.gpu_count}
    return tuple(sorted((n, asked) for n, asked in peak.items() if asked and n not in ours))


def _of(resources: _Resources | None) -> Mapping[str, int]:
    """Requests of a container; the API server copies limits where there are none."""
    if resources is None:
        return {}
    texts = {**(resources.limits or {}), **(resources.requests or {})}
    return {name: _amount(name, str(text)) for name, text in texts.items()}


def _amount(name: str, text: str) -> int:
    return milli(text) if name == CPU else amount(text)


def _add(total: dict[str, int], asked: Mapping[str, int]) -> None:
    for name, value in asked.items():
        total[name] = total.get(name, 0) + value


def _raise(peak: dict[str, int], other: Mapping[str, int]) -> None:
    for name, value in other.items():
        peak[name] = max(peak.get(name, 0), value)


_BOUND_VOLUMES: Final = frozenset(
    {
        *("persistentVolumeClaim", "ephemeral", "gcePersistentDisk", "awsElasticBlockStore"),
        *("azureDisk", "cinder", "iscsi", "rbd", "csi"),
    }
)


def _unsupported(spec: _Spec) -> Iterator[str]:
    affinity = spec.affinity or _Affinity()
    if affinity.pod_affinity and affinity.pod_affinity.required:
        yield "inter-pod affinity"
    if affinity.pod_anti_affinity and affinity.pod_anti_affinity.required:
        yield "inter-pod anti-affinity"
    spread = spec.topology_spread_constraints or ()
    if any(each.when_unsatisfiable == "DoNotSchedule" for each in spread):
        yield "topology spread constraints"
    if any(_BOUND_VOLUMES & volume.keys() for volume in spec.volumes or ()):
        yield "volumes"
    boxes = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(port.host_port for box in boxes for port in box.ports or ()):
        yield "host ports"
    if spec.resource_claims:
        yield "resource claims"
