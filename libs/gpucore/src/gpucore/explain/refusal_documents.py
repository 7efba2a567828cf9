"""The documents of refusals: by node, and in groups by reason.

Versioned as in :mod:`gpucore.explain.documents`.
"""

from collections.abc import Iterable

import msgspec

from gpucore.explain.groups import Group, figures
from gpucore.explain.sentences import sentence
from gpucore.model import FitError
from gpucore.steps import Steps


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
        gpus=[
            GpuRefusalDoc(gpu.index, gpu.code.value, gpu.free, gpu.total, gpu.requested)
            for gpu in refusal.gpus
        ],
    )
