"""The tables of ``gpushare serve``: arena's columns, with what each pod holds of its GPUs."""

from collections.abc import Sequence
from typing import Final

from gpuinspect.serving.served import Serving, ServingInstance
from gpuinspect.terminal.output import align

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
_NONE: Final = "N/A"
"""Arena's word for an empty cell."""


def servings(found: Sequence[Serving], *, namespaces: bool, headers: bool = True) -> str:
    """One line a served model; amounts are those of one pod."""
    columns = ("NAMESPACE", *_COLUMNS) if namespaces else _COLUMNS
    head = "\t".join(columns) + "\n" if headers else ""
    return align(head + "".join(_row(each, namespaces=namespaces) for each in found))


def serving(one: Serving, pods: Sequence[ServingInstance]) -> str:
    """Everything of one served model, then its pods."""
    fields = (
        ("Name", one.name),
        ("Namespace", one.namespace),
        ("Type", one.kind),
        ("Version", one.version or _NONE),
        ("Deployment", one.deployment),
        ("Desired", str(one.desired)),
        ("Available", _available(one)),
        ("Address", one.address or _NONE),
        ("Ports", ",".join(one.ports) or _NONE),
        ("GPU", str(one.gpu_count)),
        ("GPU memory", _memory(one)),
    )
    about = align("".join(f"{name}:\t{text}\n" for name, text in fields))
    head = "  NAME\tSTATUS\tREADY\tRESTARTS\tNODE\tGPU_MEMORY(Allocated)\n"
    rows = "".join(_instance(pod) for pod in pods)
    return f"{about}\nInstances:\n{align(head + rows)}"


def _row(one: Serving, *, namespaces: bool) -> str:
    cells = [
        one.name,
        one.kind,
        one.version or _NONE,
        str(one.desired),
        _available(one),
        one.address or _NONE,
        ",".join(one.ports) or _NONE,
        str(one.gpu_count),
        _memory(one),
    ]
    return "\t".join([one.namespace, *cells] if namespaces else cells) + "\n"


def _available(one: Serving) -> str:
    waiting = f" ({one.waiting} waiting for their turn)" if one.waiting else ""
    return f"{one.available}{waiting}"


def _memory(one: Serving) -> str:
    core = f" ({one.gpu_core}% of compute)" if one.gpu_core else ""
    return f"{one.gpu_memory}{core}" if one.gpu_memory else _NONE


def _instance(pod: ServingInstance) -> str:
    held = ",".join(
        f"gpu{index}({units})" if units else f"gpu{index}" for index, units in pod.gpus.items()
    )
    cells = [pod.name, pod.phase, pod.ready, str(pod.restarts), pod.node or _NONE, held or _NONE]
    return "  " + "\t".join(cells) + "\n"
