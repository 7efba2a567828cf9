"""The tables of ``gpushare serve``: arena's columns, with what each pod holds of its GPUs."""

from collections.abc import Sequence
from typing import Final

from gpuinspect.serving.documents import InstanceDoc, ServingDoc
from gpuinspect.terminal.output import align_rows, table

_LISTED: Final = (
    *("Name", "Type", "Version", "Desired", "Available"),
    *("Address", "Ports", "GPU", "GPU memory"),
)
"""The fields of a served model that are columns of the list."""
_INSTANCE_COLUMNS: Final = (
    *("  NAME", "STATUS", "READY"),
    *("RESTARTS", "NODE", "GPU_MEMORY(Allocated)"),
)
_NONE: Final = "N/A"
"""Arena's word for an empty cell."""


def servings(found: Sequence[ServingDoc], *, namespaces: bool, headers: bool = True) -> str:
    """One line a served model; amounts are those of one pod."""
    shown = ("Namespace", *_LISTED) if namespaces else _LISTED
    columns = [name.upper().replace(" ", "_") for name in shown]
    rows = ([fields[name] for name in shown] for fields in map(_fields, found))
    return table(columns, rows, headers=headers)


def serving(one: ServingDoc) -> str:
    """Everything of one served model, then its pods."""
    about = align_rows((f"{name}:", text) for name, text in _fields(one).items())
    return f"{about}\nInstances:\n{table(_INSTANCE_COLUMNS, map(_instance, one.instances))}"


def _fields(one: ServingDoc) -> dict[str, str]:
    return {
        "Name": one.name,
        "Namespace": one.namespace,
        "Type": one.type,
        "Version": one.version or _NONE,
        "Deployment": one.deployment,
        "Desired": str(one.desired),
        "Available": _available(one),
        "Address": one.address or _NONE,
        "Ports": ",".join(one.ports) or _NONE,
        "GPU": str(one.gpu_count),
        "GPU memory": _memory(one),
    }


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
