"""The JSON and YAML of ``gpushare whatif``; versioned as in :mod:`gpuinspect.documents`."""

from collections.abc import Sequence

import msgspec

from gpuinspect.asking import Answer
from gpuinspect.documents import API_VERSION
from gpuinspect.explaindocuments import GroupDoc, group_doc
from gpuinspect.schedulers import ClusterPolicy


class WhatIfPodDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod: its node and units by card, or why it fits nowhere."""

    name: str
    fits: bool
    node: str
    unit: str
    gpus: dict[str, int]
    core_percent: dict[str, int]
    whole_gpus: list[int]
    refused: list[GroupDoc]


class WhatIfDoc(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare whatif -o json``."""

    api_version: str
    kind: str
    asked: int
    fits: int
    items: list[WhatIfPodDoc]
    policy: str
    topology_policy: str
    policy_source: str
    notes: list[str]


def what_if_doc(
    answers: Sequence[Answer], policy: ClusterPolicy, notes: Sequence[str]
) -> WhatIfDoc:
    """The document of all pods."""
    fitting = sum(answer.fits for answer in answers)
    items = [_pod(answer) for answer in answers]
    return WhatIfDoc(
        api_version=API_VERSION,
        kind="WhatIf",
        asked=len(answers),
        fits=fitting,
        items=items,
        policy=policy.name,
        topology_policy=policy.topology,
        policy_source=policy.source,
        notes=list(notes),
    )


def _pod(answer: Answer) -> WhatIfPodDoc:
    placement = answer.outcome.placement
    return WhatIfPodDoc(
        name=answer.outcome.name,
        fits=answer.fits,
        node=placement.node if placement else "",
        unit=str(answer.unit or ""),
        gpus={str(index): units for index, units in placement.mem.items()} if placement else {},
        core_percent={str(i): part for i, part in placement.core.items()} if placement else {},
        whole_gpus=list(placement.group) if placement else [],
        refused=[group_doc(group) for group in answer.groups],
    )
