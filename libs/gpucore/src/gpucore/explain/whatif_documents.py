"""The one document that answers a what-if question: ``gpushare whatif`` and the ``/api/v1``.

Versioned as in :mod:`gpucore.explain.documents`.
"""

from collections.abc import Sequence

import msgspec

from gpucore.explain.answers import Answer
from gpucore.explain.groups import GroupDoc, RefusalDoc, group_doc, refusal_docs
from gpucore.explain.sentences import placement_sentence
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.steps import Steps
from gpucore.wire.documents import API_VERSION, Document


class WhatIfPodDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod: its node and units by GPU, or why it fits nowhere.

    ``refused`` has the refusing nodes in groups by reason, ``refusals`` the first by name. A place
    that is only ``likely`` names the reasons in ``likelyBecause``. ``scheduler`` is the name of the
    scheduler's profile that the pod gets, empty where that is not known.
    """

    name: str
    fits: bool
    node: str
    unit: str
    gpus: dict[str, int]
    core_percent: dict[str, int]
    exclusive_gpus: list[int]
    refused: list[GroupDoc]
    text: str
    refusals: list[RefusalDoc]
    likely: bool
    likely_because: list[str]
    scheduler: str


class WhatIfDoc(Document, frozen=True):
    """Where pods would be placed if they were created now, in this order."""

    requested: int
    fits: int
    items: list[WhatIfPodDoc]
    policy: str
    topology_policy: str
    policy_source: str
    notes: list[str]


def what_if_document(
    answers: Sequence[Answer], policy: ClusterPolicy, notes: Sequence[str] = ()
) -> Steps[WhatIfDoc]:
    """The document of all pods."""
    items: list[WhatIfPodDoc] = []
    for before, answer in zip((None, *answers), answers, strict=False):
        alike = before is not None and not answer.fits and before.groups is answer.groups
        if alike:
            reasons = items[-1].refused, items[-1].refusals
        else:
            reasons = yield from _reasons(answer)
        items.append(_pod(answer, reasons))
    return WhatIfDoc(
        api_version=API_VERSION,
        kind="WhatIf",
        requested=len(answers),
        fits=sum(answer.fits for answer in answers),
        items=items,
        policy=policy.name,
        topology_policy=policy.topology,
        policy_source=policy.source,
        notes=list(notes),
    )


_Reasons = tuple[list[GroupDoc], list[RefusalDoc]]


def _reasons(answer: Answer) -> Steps[_Reasons]:
    refusals = yield from refusal_docs(answer.outcome.refusals.values())
    return [group_doc(group) for group in answer.groups], refusals


def _pod(answer: Answer, reasons: _Reasons) -> WhatIfPodDoc:
    placement = answer.outcome.placement
    refused, refusals = reasons
    return WhatIfPodDoc(
        name=answer.outcome.name,
        fits=answer.fits,
        node=placement.node if placement else "",
        unit=str(answer.unit or ""),
        gpus={str(index): units for index, units in placement.mem.items()} if placement else {},
        core_percent={str(i): part for i, part in placement.core.items()} if placement else {},
        exclusive_gpus=list(placement.group) if placement else [],
        refused=refused,
        text=_text(answer),
        refusals=refusals,
        likely=bool(answer.likely),
        likely_because=list(answer.likely),
        scheduler=answer.scheduler,
    )


def placed_text(answer: Answer) -> str:
    """Where a pod goes that has a place."""
    if answer.outcome.placement is None:
        raise ValueError(f"{answer.outcome.name} has no place")
    sentence = placement_sentence(answer.outcome.placement, answer.unit)
    return f"likely {sentence}" if answer.likely else sentence


def _text(answer: Answer) -> str:
    if answer.outcome.placement is not None:
        return placed_text(answer)
    if answer.outcome.node:
        return f"does not fit node {answer.outcome.node}"
    shown = len(answer.outcome.refusals)
    if shown < answer.refusing:
        return f"fits no node; refusals of {shown} of {answer.refusing} nodes:"
    return "fits no node"
