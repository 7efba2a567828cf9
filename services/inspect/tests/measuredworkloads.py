"""Histories of workloads as device plugins would have recorded them."""

from collections.abc import Sequence
from pathlib import Path

from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import LimitEvent, UsageHistory, WorkloadKey

GIB = 1 << 30
DAY = 86400.0
NEWEST = 1_767_326_400.0


def history(
    name: str,
    *used: float,
    requested: float = 16,
    limit: float = 0,
    namespace: str = "default",
    kind: str = "Deployment",
    container: str = "main",
    days: float = 8,
    starts: int = 12,
    pods: int = 3,
    out_of_memory: int = 0,
    ago: float = 0,
    claims: bool = False,
    gpus: int = 0,
) -> UsageHistory:
    """Samples in GiB of a container that was measured until ``ago`` days before the newest."""
    key = WorkloadKey(namespace, kind, name, container)
    found = UsageHistory(key, pods=pods, starts=starts)
    last = NEWEST - ago * DAY
    for each in used:
        found.record(
            last,
            int(each * GIB),
            requested_bytes=int(requested * GIB),
            limit_bytes=int(limit * GIB),
            claims=claims,
            gpus=gpus,
        )
    found.requested_bytes, found.limit_bytes = int(requested * GIB), int(limit * GIB)
    found.first_seen, found.last_seen, found.reached = last - days * DAY, last, LimitEvent()
    for _ in range(out_of_memory):
        found.fail(last, int(max(limit, requested) * GIB))
    return found


def several() -> list[UsageHistory]:
    """A workload for every rule."""
    return [
        history("web", 2, 3, 6),
        history("burst", *[4] * 19, 10, requested=8, limit=20),
        history("right", 4, 6, requested=7, namespace="research"),
        history("vllm", 14.4, 14.4, 14.5, kind="StatefulSet", namespace="research"),
        history(
            "train", 9.5, requested=10, kind="Job", days=0.1, starts=1, pods=1, out_of_memory=2
        ),
        history("new", 3, days=0.25, starts=1, pods=1),
        history("nightly", 1, 2, kind="CronJob", namespace="research"),
        history("gone", *[1] * 4, ago=20),
    ]


def of_everything() -> list[UsageHistory]:
    """Pods of the cluster of the golden files, and workloads that do not run now."""
    return [
        history("web-1", 2, 3, requested=9, kind="Pod", container="c0"),
        history("web-2", 1.5, requested=2, kind="Pod", container="c0"),
        history("web-2", 1, requested=4, kind="Pod", container="c1"),
        history("web", 9, 10, requested=40, namespace="research", container="c0"),
        *several()[1:],
    ]


def written(path: Path, *nodes: Sequence[UsageHistory]) -> Path:
    """A file with one document for each node."""
    documents = [encode_histories(f"n{i}", each) for i, each in enumerate(nodes)]
    path.write_bytes(b"\n".join(documents) + b"\n")
    return path
