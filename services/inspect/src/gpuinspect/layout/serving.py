"""The tables of ``gpushare serve``: arena's columns, with what each pod holds of its GPUs."""

from collections.abc import Sequence
from typing import Final

from gpuinspect.serving.documents import InstanceDoc, ServingDoc
from gpuinspect.terminal.output import align_rows, table

_COLUMNS: Final = (
    "NAME",
    "TYPE",
    "VERSION",
    "DESIRED",
    "AVAILABLE",
    "ADDRESS",
    "PORTS",
    "GPU",
    "GPU_MEMORY",
)
_INSTANCE_COLUMNS: Final = (
    *("  NAME", "STATUS", "READY"),
    *("RESTARTS", "NODE", "GPU_MEMORY(Allocated)"),
)
_NONE: Final = "N/A"
"""Arena's word for an empty cell."""


def servings(found: Sequence[ServingDoc], *, namespaces: bool, headers: bool = True) -> str:
    """One line a served model; amounts are those of one pod."""
    columns = ("NAMESPACE", *_COLUMNS) if namespaces else _COLUMNS
    rows = (_row(each, namespaces=namespaces) for each in found)
    return table(columns, rows, headers=headers)


def serving(one: ServingDoc) -> str:
    """Everything of one served model, then its pods."""
    fields = (
        ("Name", one.name),
        ("Namespace", one.namespace),
        ("Type", one.type),
        ("Version", one.version or _NONE),
        ("Deployment", one.deployment),
        ("Desired", str(one.desired)),
        ("Available", _available(one)),
        ("Address", one.address or _NONE),
        ("Ports", ",".join(one.ports) or _NONE),
        ("GPU", str(one.gpu_count)),
        ("GPU memory", _memory(one)),
    )
    about = align_rows((f"{name}:", text) for name, text in fields)
    return f"{about}\nInstances:\n{table(_INSTANCE_COLUMNS, map(_instance, one.instances))}"


def _row(one: ServingDoc, *, namespaces: bool) -> list[str]:
    cells = [
        one.name,
        one.type,
        one.version or _NONE,
        str(one.desired),
        _available(one),
        one.address or _NONE,
        ",".join(one.ports) or _NONE,
        str(one.gpu_count),
        _memory(one),
    ]
    return [one.namespace, *cells] if namespaces else cells


def _available(one: ServingDoc) -> str:
    waiting = f" ({one.waiting} waiting for their turn)" if one.waiting else ""
    return f"{one.available}{waiting}"


def _memory(one: ServingDoc) -> str:
    core = f" ({one.gpu_core}% of compute)" if one.gpu_core else ""
    return f"{one.gpu_memory}{core}" if one.gpu_memory else _NONE


def _instance(pod: InstanceDoc) -> tuple[str, ...]:
    held = ",".join(
        f"gpu{index}({units})" if units else f"gpu{index}" for index, units in pod.gpus.items()
    )
    name, restarts = f"  {pod.name}", str(pod.restarts)
    return (name, pod.phase, pod.ready, restarts, pod.node or _NONE, held or _NONE)
