"""JSON and YAML of ``gpushare cost``; versions as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Mapping

import msgspec

from gpucore.wire.documents import API_VERSION, Document


class CostDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One namespace; ``used_gpu_hours`` is ``null`` where no hours are known as used."""

    name: str
    allocated_gpu_hours: float
    used_gpu_hours: float | None
    cost: float


class CostTotal(msgspec.Struct, frozen=True, rename="camel"):
    """All namespaces together."""

    allocated_gpu_hours: float
    used_gpu_hours: float | None
    cost: float


class CostList(Document, frozen=True):
    """The answer of ``gpushare cost -o json``; ``price`` is that of an hour of one GPU."""

    since: str
    price: float
    items: list[CostDoc]
    total: CostTotal


def cost_list(
    allocated: Mapping[str, float], used: Mapping[str, float], *, since: str, price: float
) -> CostList:
    """The document of allocated and used GPU-hours by namespace."""
    items = [
        CostDoc(name, allocated.get(name, 0.0), used.get(name), allocated.get(name, 0.0) * price)
        for name in sorted(allocated.keys() | used.keys())
    ]
    hours = sum(allocated.values())
    total = CostTotal(hours, sum(used.values()) if used else None, hours * price)
    return CostList(API_VERSION, "CostList", since, price, items, total)
