"""Cluster traces in CSV: one file of nodes, one of pods, as the openb traces name their columns.

A file that cannot be read is refused with its line: a replay over half a trace would look right.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from gpucore.simulate.jobs import TimedPod
from gpucore.simulate.traces import TraceError, TraceNode, TracePod
from gpuinspect.errors import InspectError

T = TypeVar("T")
Row = Mapping[str, str]


def read_nodes(path: Path) -> list[TraceNode]:
    """Nodes from columns ``sn, cpu_milli, memory_mib, gpu`` and, if there is one, ``model``.

    Raises:
        InspectError: the file cannot be read, a line is not a node, two nodes have one name, or no
            node has GPUs.
    """
    nodes = list(_read(path, _node))
    for name, number in Counter(node.name for node in nodes).items():
        if number > 1:
            raise InspectError(f"{path}: {number} nodes have the name {name}: names must differ")
    if not any(node.gpus for node in nodes):
        raise InspectError(f"{path}: no node of this trace has GPUs")
    return nodes


def read_pods(path: Path) -> list[TracePod]:
    """Pods from columns ``name, cpu_milli, memory_mib, num_gpu, gpu_milli`` and ``gpu_spec``.

    ``gpu_spec`` may be missing; models in it are separated by ``|``.

    Raises:
        InspectError: the file cannot be read, a line is not a pod, or no pod requests a GPU.
    """
    pods = list(_read(path, _pod))
    if not any(pod.milli for pod in pods):
        raise InspectError(f"{path}: no pod of this trace requests a GPU")
    return pods


def read_lifetimes(path: Path) -> list[TimedPod]:
    """Pods as :func:`read_pods`, with ``creation_time`` and ``deletion_time`` in seconds.

    Raises:
        InspectError: the file cannot be read, a line is not a pod, it lacks these times, or there
            is no pod.
    """
    pods = list(_read(path, _timed))
    if not pods:
        raise InspectError(f"{path}: the trace has no pods")
    return pods


def _read(path: Path, convert: Callable[[Row], T]) -> Iterator[T]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            for row in rows:
                yield _converted(row, convert, f"{path}:{rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InspectError(f"{path}: {error}") from error


def _converted(row: Row, convert: Callable[[Row], T], where: str) -> T:
    try:
        return convert(row)
    except KeyError as error:
        raise InspectError(f"{where}: there is no column {error}") from error
    except TraceError as error:
        raise InspectError(f"{where}: {error}") from error


def _node(row: Row) -> TraceNode:
    return TraceNode(
        name=row["sn"],
        cpu_milli=_number(row, "cpu_milli"),
        memory_mib=_number(row, "memory_mib"),
        gpus=_number(row, "gpu"),
        model=row.get("model") or "",
    )


def _pod(row: Row) -> TracePod:
    models = (row.get("gpu_spec") or "").split("|")
    return TracePod(
        name=row["name"],
        cpu_milli=_number(row, "cpu_milli"),
        memory_mib=_number(row, "memory_mib"),
        gpus=_number(row, "num_gpu"),
        gpu_milli=_number(row, "gpu_milli"),
        models=frozenset(model for model in models if model),
    )


def _timed(row: Row) -> TimedPod:
    seconds = _number(row, "deletion_time") - _number(row, "creation_time")
    if seconds < 0:
        raise TraceError(f"pod {row['name']} is deleted before it is created")
    return TimedPod(_pod(row), float(seconds))


def _number(row: Row, column: str) -> int:
    text = row[column]
    try:
        return int(text)
    except (TypeError, ValueError):
        raise TraceError(f"column {column} holds {text!r}, which is not an integer") from None
