"""GPU memory by group: allocated, limit, in use, and requested by pending pods.

Figures are those of the ledger. With the rights of one namespace the nodes are unknown, and so is
the unit; amounts are then those that the pods request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from gpucore.explain.claims import requested
from gpucore.explain.sentences import unit_words
from gpucore.units import MemoryUnit, counted, listed
from gpucore.wire.names import Names
from gpucore.wire.objects import ObjectMetadata
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import amount
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.claims import PodClaims
from gpuinspect.queries.memory_in_use import NO_FIGURES, Figures
from gpuinspect.queries.shares import view_of_nodes
from gpuinspect.queries.views import ClusterView, of_namespace

T = TypeVar("T", int, float)
LABEL: Final = "label:"
NO_LABEL: Final = "<none>"
NO_MODEL: Final = "<unknown>"


class GroupUsage(msgspec.Struct, frozen=True):
    """One group, in units of GPU memory; an exclusive GPU counts with all of its memory.

    Attributes:
        pods: that hold GPU memory; ``pending_pods`` hold none yet.
        gpus: GPUs there are, of nodes and models; exclusive GPUs held, of namespaces and labels.
        total: memory there is; ``None`` for groups of pods.
        limit: of the ResourceQuotas, the lowest; ``None`` for none, and where it is unknown.
        pending: memory that pending pods request; ``pending_gpus`` exclusive GPUs likewise.
        used_bytes: memory in use; ``None`` where there is no figure.
        used_unknown: pods that hold GPU memory, or GPUs of nodes and models, without a figure:
            ``used_bytes`` excludes them, and is a lower bound.
        allocated_unknown_unit: units of pods whose nodes have no known unit, where the other nodes
            have several; ``pending_unknown_unit`` likewise. ``allocated`` and ``pending`` exclude
            them.
    """

    name: str
    pods: int = 0
    allocated: int = 0
    gpus: int = 0
    total: int | None = None
    limit: int | None = None
    pending_pods: int = 0
    pending: int = 0
    pending_gpus: int = 0
    used_bytes: float | None = None
    used_unknown: int = 0
    allocated_unknown_unit: int = 0
    pending_unknown_unit: int = 0

    def plus(self, other: "GroupUsage") -> "GroupUsage":
        """Both groups as one, under the first name."""
        figures = self.__struct_fields__[1:]
        sums: list[Any] = [_sum(getattr(self, f), getattr(other, f)) for f in figures]
        return GroupUsage(self.name, *sums)


class UsageReport(msgspec.Struct, frozen=True):
    """The groups by name.

    Attributes:
        unit: of all amounts; empty where no node publishes it.
        notes: sentences about GPUs and amounts that are not counted.
    """

    groups: tuple[GroupUsage, ...]
    unit: str
    notes: tuple[str, ...] = ()


def _by_pods(
    snapshot: Snapshot,
    names: Names,
    name_of: Callable[[Pod], str],
    *,
    namespace: str,
    figures: Figures,
    quotas: bool,
) -> UsageReport:
    """Pods in groups that ``name_of`` names.

    Args:
        snapshot: the cluster, or what may be read of it.
        namespace: whose pods are counted; empty for all.
        quotas: the groups are namespaces, whose quotas are their limits.
    """
    shown = _view(snapshot, names)
    held, units = _held(shown), {node.unit for node in shown.nodes}
    parts: list[GroupUsage] = []
    for pod in snapshot.pods:
        if namespace in {"", pod.namespace} and not pod.finished:
            found = _of_pod(pod, name_of(pod), names, held, figures)
            known = len(units) < 2 or pod.uid in held
            parts += found if known else map(_of_unknown_unit, found)
    parts += _of_claims(shown, snapshot.pods, namespace, named=quotas)
    parts += _pending_for_claims(snapshot, names, name_of, namespace, shown.unit)
    groups = _merged(parts)
    if quotas and len(units) < 2:
        groups = _with_limits(groups, _limits(snapshot, names), namespace)
    unit = str(shown.unit) if shown.nodes else ""
    notes = (*_pending(shown, namespace), *_uncounted(groups, sorted(units)))
    return UsageReport(groups, unit, notes)


def _by_node(snapshot: Snapshot, names: Names, figures: Figures) -> UsageReport:
    """Nodes with GPUs."""
    shown, known = _view(snapshot, names), {pod.uid for pod in snapshot.pods}
    groups = tuple(
        GroupUsage(
            node.name,
            pods=len({row.uid for row in node.pods if row.uid in known}),
            allocated=node.used,
            gpus=len(node.gpus),
            total=node.total,
            used_bytes=_known(figures.gpus.get(gpu.uuid) for gpu in node.gpus),
            used_unknown=sum(gpu.uuid not in figures.gpus for gpu in node.gpus),
        )
        for node in sorted(shown.nodes, key=lambda node: node.name)
    )
    return UsageReport(groups, str(shown.unit), tuple(_pending(shown)))


def _by_model(snapshot: Snapshot, names: Names, figures: Figures) -> UsageReport:
    """GPU models; a pod on GPUs of two models counts for both."""
    shown, known = _view(snapshot, names), {pod.uid for pod in snapshot.pods}
    parts = [
        GroupUsage(
            gpu.model or NO_MODEL,
            allocated=gpu.used,
            gpus=1,
            total=gpu.total,
            used_bytes=figures.gpus.get(gpu.uuid),
            used_unknown=int(gpu.uuid not in figures.gpus),
        )
        for node in shown.nodes
        for gpu in node.gpus
    ]
    pods = {
        (gpu.model or NO_MODEL, row.uid)
        for node in shown.nodes
        for gpu in node.gpus
        for row in node.pods
        if gpu.index in row.gpus and row.uid in known
    }
    parts += [GroupUsage(model, pods=1) for model, _ in pods]
    notes = (*_of_no_model(shown), *_pending(shown))
    return UsageReport(_merged(parts), str(shown.unit), notes)


def _of_no_model(shown: ClusterView) -> Iterator[str]:
    """A sentence about memory on GPUs that are not known, if there is any."""
    units = sum(node.used - sum(gpu.used for gpu in node.gpus) for node in shown.nodes)
    if units:
        memory = f"{units} {unit_words(shown.unit)}"
        yield f"{memory} on unknown GPUs are not counted for a model (see 'gpushare doctor')"


def grouped(
    snapshot: Snapshot,
    names: Names,
    by: str,
    figures: Figures | None = None,
    *,
    namespace: str = "",
) -> UsageReport:
    """Pods or GPUs of the cluster in groups.

    Args:
        by: ``node``, ``model``, ``namespace`` or ``label:KEY``.
        namespace: whose pods are counted; empty for all. Nodes and models have those of all.
    """
    known = figures or NO_FIGURES
    if by in {"node", "model"}:
        return (_by_node if by == "node" else _by_model)(snapshot, names, known)
    quotas = by == "namespace"
    return _by_pods(
        snapshot, names, _group_name(by), namespace=namespace, figures=known, quotas=quotas
    )


def _group_name(by: str) -> Callable[[Pod], str]:
    """The group of a pod, by its namespace or a label."""
    if by == "namespace":
        return lambda pod: pod.namespace
    key = by.removeprefix(LABEL)
    return lambda pod: pod.labels.get(key, NO_LABEL)


def _view(snapshot: Snapshot, names: Names) -> ClusterView:
    ledger = ledger_of(snapshot, names)
    infos = ledger.nodes()
    nodes = (node for node in snapshot.nodes if node.name in infos and infos[node.name].devices)
    return view_of_nodes(ledger, sorted(nodes, key=lambda node: node.name))


def _pending(shown: ClusterView, namespace: str = "") -> Iterator[str]:
    """A sentence for each node with exclusive GPUs whose indexes are unknown."""
    for node in of_namespace(shown, namespace).nodes:
        if node.pending_gpus:
            gpus = counted(sum(node.pending_gpus.values()), "exclusive GPU")
            yield (
                f"{node.name}: {gpus} PENDING, GPU unknown, so their memory is not counted"
                " (see 'gpushare doctor')"
            )


def _held(shown: ClusterView) -> Mapping[str, tuple[int, int]]:
    """Units and exclusive GPUs by UID of the pod; a pod can have several claims."""
    found: dict[str, tuple[int, int]] = {}
    for node in shown.nodes:
        for pod in node.pods:
            units, gpus = found.get(pod.uid, (0, 0))
            held = sum(pod.gpus.values()) + pod.pending
            found[pod.uid] = (units + held, gpus + len(pod.group) + pod.pending_gpus)
    return found


def _of_claims(
    shown: ClusterView, pods: Iterable[Pod], namespace: str, *, named: bool
) -> Iterator[GroupUsage]:
    """Claims that no pod or several pods use; without the label of a pod."""
    known = {pod.uid for pod in pods}
    for node in shown.nodes:
        for held in node.pods:
            if held.claim and held.uid not in known and namespace in {"", held.namespace}:
                units = sum(held.gpus.values()) + held.pending
                name = held.namespace if named else NO_LABEL
                yield GroupUsage(name, allocated=units, gpus=len(held.group) + held.pending_gpus)


def _of_pod(
    pod: Pod, name: str, names: Names, held: Mapping[str, tuple[int, int]], figures: Figures
) -> Iterator[GroupUsage]:
    pod_request = pod_request_of(pod, names)
    used = figures.pods.get(f"{pod.namespace}/{pod.name}")
    holds = GroupUsage(name, pods=1, used_bytes=used, used_unknown=int(used is None))
    if pod.uid in held:
        units, gpus = held[pod.uid]
        yield msgspec.structs.replace(holds, allocated=units, gpus=gpus)
    elif pod_request is not None and pod.node:
        mem, gpus = pod_request.mem, pod_request.gpus
        yield msgspec.structs.replace(holds, allocated=mem, gpus=gpus)
    elif pod_request is not None:
        mem, gpus = pod_request.mem, pod_request.gpus
        yield GroupUsage(name, pending_pods=1, pending=mem, pending_gpus=gpus)


def _of_unknown_unit(found: GroupUsage) -> GroupUsage:
    return msgspec.structs.replace(
        found,
        allocated=0,
        pending=0,
        allocated_unknown_unit=found.allocated,
        pending_unknown_unit=found.pending,
    )


def _uncounted(groups: Iterable[GroupUsage], units: Iterable[str]) -> Iterator[str]:
    """A sentence about the requests whose unit is unknown."""
    found = [each for each in groups if each.allocated_unknown_unit or each.pending_unknown_unit]
    if found:
        allocated = sum(group.allocated_unknown_unit for group in found)
        pending = sum(group.pending_unknown_unit for group in found)
        yield (
            f"{counted(allocated, 'unit')} allocated and {counted(pending, 'unit')} pending are not"
            f" counted ({listed([group.name for group in found], 3)}): nodes use"
            f" {' and '.join(units)}, and the unit of these requests is unknown"
        )


def _pending_for_claims(
    snapshot: Snapshot,
    names: Names,
    name_of: Callable[[Pod], str],
    namespace: str,
    unit: MemoryUnit,
) -> Iterator[GroupUsage]:
    """Pods without a node whose GPUs are requested by claims."""
    claims = PodClaims(snapshot, ledger_of(snapshot, names))
    before: set[tuple[str, str]] = set()
    for pod, raw in snapshot.raw_pods():
        if pod.node or pod.finished or namespace not in {"", pod.namespace}:
            continue
        facts = claims.facts(pod, raw)
        if facts is not None and not facts.held:
            mine = {(pod.namespace, name) for name in pod.claims}
            known = len(mine) == len(facts.specs) and mine <= before  # other pods name these claims
            mib, gpus = (0, 0) if known else requested(facts.rules.specs)
            before |= mine
            units = unit.units_for(mib)
            yield GroupUsage(name_of(pod), pending_pods=1, pending=units, pending_gpus=gpus)


def _merged(parts: Iterable[GroupUsage]) -> tuple[GroupUsage, ...]:
    found: dict[str, GroupUsage] = {}
    for part in parts:
        known = found.get(part.name)
        found[part.name] = part if known is None else known.plus(part)
    return tuple(found[name] for name in sorted(found))


class _Spec(msgspec.Struct):
    hard: Mapping[str, str] | None = None


class _Quota(msgspec.Struct):
    metadata: ObjectMetadata
    spec: _Spec | None = None


def _limits(snapshot: Snapshot, names: Names) -> Mapping[str, int]:
    """Units by namespace; of several quotas the lowest holds."""
    found: dict[str, int] = {}
    for raw in snapshot.all("ResourceQuota"):
        quota = msgspec.json.decode(raw, type=_Quota)
        hard = ((quota.spec or _Spec()).hard or {}).get(f"requests.{names.gpu_mem}")
        if hard is not None:
            namespace, units = quota.metadata.namespace, amount(hard)
            found[namespace] = min(units, found.get(namespace, units))
    return found


def _with_limits(
    groups: Iterable[GroupUsage], limits: Mapping[str, int], namespace: str
) -> tuple[GroupUsage, ...]:
    """Namespaces with a limit are groups even if they hold nothing."""
    known = {group.name: group for group in groups}
    wanted = (name for name in limits if namespace in {"", name})
    named = sorted(known.keys() | set(wanted))
    return tuple(
        msgspec.structs.replace(known.get(name, GroupUsage(name)), limit=limits.get(name))
        for name in named
    )


def _known(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _sum(first: T | None, second: T | None) -> T | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second
