"""Measured memory of workloads from a snapshot or a file."""

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import msgspec

from gpucore.sizing.history_documents import KIND, decode_histories
from gpucore.sizing.usage_history import UsageHistory, merged
from gpucore.wire.errors import WireError
from gpuinspect.cluster.snapshots import ListedObjects
from gpuinspect.errors import SnapshotError


class HistorySource(StrEnum):
    """Where histories come from."""

    PLUGINS = "plugins"
    PROMETHEUS = "prometheus"
    FILE = "file"
    SNAPSHOT = "snapshot"


class ReadHistories(msgspec.Struct, frozen=True):
    """What was read.

    Attributes:
        items: one history for each container of a workload, of all nodes together.
        unread: nodes whose plugin did not answer, with the reason.
        forbidden: the namespace in which the caller lacks the right; empty where there is none.
        source: where they come from.
        step_seconds: between two samples; 0: all samples that the plugins took.
    """

    items: tuple[UsageHistory, ...]
    unread: tuple[tuple[str, str], ...] = ()
    forbidden: str = ""
    source: HistorySource = HistorySource.PLUGINS
    step_seconds: int = 0


def of_snapshot(snapshot: ListedObjects) -> ReadHistories:
    """Those that were saved among the objects of a snapshot.

    Raises:
        WireError: an object is no list of histories.
    """
    found = [each for raw in snapshot.all(KIND) for each in decode_histories(bytes(raw))]
    return ReadHistories(by_workload(found), source=HistorySource.SNAPSHOT)


def of_file(path: Path) -> ReadHistories:
    """Those in a file with one document of a plugin on each line.

    Raises:
        SnapshotError: it cannot be read, or has something else.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SnapshotError(f"cannot read the histories in {path}: {error.strerror}") from error
    found: list[UsageHistory] = []
    for number, line in enumerate(lines, start=1):
        try:
            found += decode_histories(line) if line.strip() else []
        except WireError as error:
            raise SnapshotError(
                f"{path}, line {number}: {error}; every line must be the answer of a device plugin"
                " at /usage-history"
            ) from error
    return ReadHistories(by_workload(found), source=HistorySource.FILE)


def by_workload(histories: Iterable[UsageHistory]) -> tuple[UsageHistory, ...]:
    """The histories of several nodes as one for each container of a workload, by name."""
    ordered = sorted(histories, key=attrgetter("key"))
    return tuple(reduce(merged, group) for _, group in groupby(ordered, attrgetter("key")))
