"""Measured memory of workloads from a snapshot or a file."""

import math
from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import msgspec

from gpucore.sizing.history_documents import KIND, decode_histories
from gpucore.sizing.merging import merged
from gpucore.sizing.usage_history import UsageHistory
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


def of_snapshot(snapshot: ListedObjects, now: float = math.inf) -> ReadHistories:
    """Those that were saved among the objects of a snapshot.

    Args:
        now: as of :func:`by_workload`.

    Raises:
        WireError: an object is no list of histories.
    """
    found = [each for raw in snapshot.all(KIND) for each in decode_histories(bytes(raw))]
    return ReadHistories(by_workload(found, now), source=HistorySource.SNAPSHOT)


def of_file(path: Path, now: float = math.inf) -> ReadHistories:
    """Those in a file with one document of a plugin on each line.

    Args:
        now: as of :func:`by_workload`.

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
    return ReadHistories(by_workload(found, now), source=HistorySource.FILE)


def by_workload(
    histories: Iterable[UsageHistory], now: float = math.inf
) -> tuple[UsageHistory, ...]:
    """The histories of several nodes as one for each container of a workload, by name.

    A plugin that cannot tell pods on one GPU apart counts their starts and measures nothing; such
    histories are left out.

    Args:
        now: Unix seconds. Samples fade up to the newest one of all, or up to here where the clock
            of a node is ahead; 0 where they do not fade.
    """
    ordered = sorted(histories, key=attrgetter("key"))
    newest = max((each.last_seen for each in ordered), default=0.0)
    found = (merged(group, min(newest, now)) for _, group in groupby(ordered, attrgetter("key")))
    return tuple(each for each in found if each is not None and each.last_seen)
