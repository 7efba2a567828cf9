"""Refusals of many nodes in groups, one for each reason with its figures, and their documents.

Versioned as in :mod:`gpucore.explain.documents`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.explain.sentences import (
    CONSTRAINT_CODES,
    amount_hint,
    headline,
    memory_words,
    reserved_hint,
    resource_words,
    sentence,
    unit_words,
    with_unit,
)
from gpucore.model import Code, FitError
from gpucore.model.codes import COUNTING
from gpucore.steps import Steps
from gpucore.units import MemoryUnit, NodeName

_OF_COMPUTE: Final = frozenset(
    {Code.INSUFFICIENT_CORE, Code.COMPUTE_TOO_LARGE, Code.PENDING_COMPUTE}
)
_MEASURED: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.INSUFFICIENT_GPUS,
        Code.PENDING_UNITS,
        Code.PENDING_COMPUTE,
        Code.TOO_LARGE,
    }
)
"""Reasons with figures; the others are given in words."""
_NOUNS: Final = {Code.TOO_LARGE: "largest GPU", Code.PENDING_COMPUTE: "free on the node"}
_PERCENT: Final = "percent"
_Ranked = tuple[int, int, NodeName, FitError]


class Group(msgspec.Struct, frozen=True):
    """Nodes that refuse the pod for one reason.

    Attributes:
        reason: without figures.
        detail: what distinguishes a reason that is not about GPUs; else a hint about the amount,
            or the nominated pods for which GPUs are reserved.
        nodes: by name.
        largest: most that is free for it on any of them, in ``measure``; ``requested`` likewise.
            For a share of several GPUs, on the GPUs of the nearest node that do not fit.
        example: the whole sentence for the node that comes nearest.
        fitting: for a share of several GPUs, those of the nearest node that fit, in words; empty
            where none does.
    """

    code: Code
    reason: str
    nodes: tuple[NodeName, ...]
    largest: int
    requested: int
    measure: str
    example: str
    remedy: str
    detail: str = ""
    fitting: str = ""


def grouped(
    refused: Mapping[NodeName, FitError], node_infos: Mapping[NodeName, NodeInfo]
) -> Steps[tuple[Group, ...]]:
    """Refusals by reason, most nodes first."""
    by_reason: dict[tuple[Code, str], list[_Ranked]] = {}
    for refusal in refused.values():
        in_words = refusal.code in CONSTRAINT_CODES
        detail = refusal.detail if in_words else reserved_hint(refusal)
        ranked = (-_fitting(refusal), -_largest(refusal), refusal.node, refusal)
        by_reason.setdefault((refusal.code, detail), []).append(ranked)
        yield
    groups = []
    for (code, _), alike in by_reason.items():
        groups.append(_group(code, alike, node_infos))
        yield
    return tuple(sorted(groups, key=lambda group: (-len(group.nodes), group.code, group.detail)))


def _group(code: Code, alike: Sequence[_Ranked], node_infos: Mapping[NodeName, NodeInfo]) -> Group:
    *_, name, refusal = min(alike, key=lambda ranked: ranked[:3])
    nearest = with_unit(refusal, node_infos[name])
    return Group(
        code=code,
        reason=headline(nearest) if code is not Code.NOT_SHARED else code.sentence.rstrip("."),
        nodes=tuple(sorted(name for *_, name, _ in alike)),
        largest=_largest(nearest),
        requested=_requested(nearest),
        measure=_measure(nearest, node_infos[nearest.node]),
        example=sentence(nearest),
        remedy=code.remedy,
        detail=_detail(nearest),
        fitting=_fitting_words(nearest),
    )


def _detail(refusal: FitError) -> str:
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return f"{refusal.detail}: {resource_words(refusal)}"
    if refusal.code in CONSTRAINT_CODES:
        return refusal.detail
    if refusal.code is Code.INVALID_REQUEST:
        return f": {refusal.detail}"
    return amount_hint(refusal) + reserved_hint(refusal)


def _requested(refusal: FitError) -> int:
    """The requested amount in the measure of the code: of a GPU's compute, its percent."""
    if refusal.code not in _OF_COMPUTE or refusal.code is Code.PENDING_COMPUTE:
        return refusal.requested
    return max((gpu.requested for gpu in refusal.gpus if gpu.code is refusal.code), default=0)


def _largest(refusal: FitError) -> int:
    """The largest free (or total) amount of one GPU; for exclusive GPUs, the number free."""
    if refusal.code in CONSTRAINT_CODES:
        return 0
    if refusal.code in {*COUNTING, Code.PENDING_UNITS, Code.PENDING_COMPUTE}:
        return refusal.free
    gpus = [gpu for gpu in refusal.gpus if gpu.code is refusal.code]
    if refusal.code in {Code.TOO_LARGE, Code.COMPUTE_TOO_LARGE}:
        return max((gpu.total for gpu in gpus), default=0)
    return max((gpu.free for gpu in gpus), default=0)


def _fitting(refusal: FitError) -> int:
    """Of a share of several GPUs, how many GPUs of the node can take their part."""
    of_node = refusal.code in {*COUNTING, Code.PENDING_UNITS, Code.PENDING_COMPUTE}
    return refusal.free if refusal.gpus and not of_node else 0


def _fitting_words(refusal: FitError) -> str:
    fitting = _fitting(refusal)
    verb = "fits" if fitting == 1 else "fit"
    shown = fitting and refusal.code in _MEASURED
    return f"{fitting} of {refusal.total} GPUs {verb}" if shown else ""


def _measure(refusal: FitError, node_info: NodeInfo) -> str:
    if refusal.code in COUNTING:
        return "gpus"
    uneven = refusal.code is Code.UNEVEN_SPLIT and refusal.detail
    return _PERCENT if refusal.code in _OF_COMPUTE or uneven else str(unit_of(node_info))


def figures(group: Group) -> str:
    """``largest free block 6 GiB, requested 8``, or the reason where no figure is known."""
    if group.code in CONSTRAINT_CODES:
        return group.detail
    if group.fitting:
        return f"{group.fitting}; of the others: {_figures(group)}"
    return _figures(group)


def _figures(group: Group) -> str:
    if group.code is Code.COMPUTE_TOO_LARGE:
        return f"a GPU has {group.largest} percent, requested {group.requested}"
    if not group.requested or group.code not in _MEASURED:
        return group.reason.partition(":")[0] + group.detail
    noun = _NOUNS.get(group.code, "largest free block")
    if group.measure == "gpus":
        plural = "" if group.largest == 1 else "s"
        return f"{group.largest} GPU{plural} free, requested {group.requested}{group.detail}"
    if group.measure == _PERCENT:
        return f"{noun} {group.largest} {_PERCENT}, requested {group.requested}{group.detail}"
    unit = MemoryUnit.parse(group.measure)
    requested = memory_words(group.requested, unit).removesuffix(f" {unit_words(unit)}")
    most = f"{group.largest} {unit_words(unit)}"
    return f"{noun} {most}, requested {requested}{group.detail}"


class GroupDoc(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that refuse the pod for one reason; amounts in ``measure``."""

    code: str
    reason: str
    figures: str
    nodes: list[str]
    largest: int
    requested: int
    measure: str
    example: str
    remedy: str


class GpuRefusalDoc(msgspec.Struct, frozen=True, rename="camel"):
    """Why one GPU cannot take its part; figures are in the unit of the code."""

    index: int
    code: str
    free: int
    total: int
    requested: int


class RefusalDoc(msgspec.Struct, frozen=True, rename="camel"):
    """Why one node refuses the pod; ``unresolvable``: no eviction could help."""

    node: str
    code: str
    text: str
    unresolvable: bool
    gpus: list[GpuRefusalDoc]


def group_doc(group: Group) -> GroupDoc:
    """The document of one reason."""
    return GroupDoc(
        code=group.code.value,
        reason=group.reason,
        figures=figures(group),
        nodes=list(group.nodes),
        largest=group.largest,
        requested=group.requested,
        measure=group.measure,
        example=group.example,
        remedy=group.remedy,
    )


def refusal_docs(refusals: Iterable[FitError]) -> Steps[list[RefusalDoc]]:
    """The documents of refusals, in their order."""
    docs = []
    for refusal in refusals:
        docs.append(_refusal_doc(refusal))
        yield
    return docs


def _refusal_doc(refusal: FitError) -> RefusalDoc:
    return RefusalDoc(
        node=refusal.node,
        code=refusal.code.value,
        text=sentence(refusal),
        unresolvable=refusal.unresolvable,
        gpus=msgspec.convert(refusal.gpus, list[GpuRefusalDoc], from_attributes=True),
    )
