"""JSON and YAML of ``gpushare usage``; versions as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Sequence

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.queries.usage import GroupUsage, UsageReport


class UsageDoc(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One group; amounts in the ``unit`` of the document, ``null`` where there is none.

    ``gpus`` of a node or model are those there are; of a namespace or label, exclusive GPUs held.
    Where nodes have several units, ``allocated`` and ``pending`` exclude requests whose unit is
    unknown; these are in ``allocatedUnknownUnit`` and ``pendingUnknownUnit``, left out if 0.
    ``usedBytes`` excludes the pods, or GPUs of nodes and models, of which memory in use is not
    known: ``usedUnknown`` is their number, left out if 0 and where ``usedBytes`` is ``null``.
    """

    name: str
    pods: int
    allocated: int
    gpus: int
    total: int | None
    limit: int | None
    used_bytes: int | None
    pending_pods: int
    pending: int
    pending_gpus: int
    allocated_unknown_unit: int = 0
    pending_unknown_unit: int = 0
    used_unknown: int = 0


class UsageList(Document, frozen=True):
    """The answer of ``gpushare usage -o json``.

    ``unit`` is empty where no node could be read; ``gaps`` is what could not be read.
    """

    by: str
    unit: str
    gaps: list[str]
    items: list[UsageDoc]


def usage_list(report: UsageReport, by: str, *, gaps: Sequence[str]) -> UsageList:
    """The document of a report."""
    items = [_group(group) for group in report.groups]
    return UsageList(API_VERSION, "UsageList", by, report.unit, list(gaps), items)


def _group(group: GroupUsage) -> UsageDoc:
    if group.used_bytes is None:
        rounded = msgspec.structs.replace(group, used_unknown=0)
    else:
        rounded = msgspec.structs.replace(group, used_bytes=round(group.used_bytes))
    return msgspec.convert(rounded, UsageDoc, from_attributes=True)
