"""The results of ``gpushare verify``, in the annotations of the device plugins' pods."""

from collections.abc import Iterator

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.wire.names import VERIFIED
from gpucore.wire.verified import by_index, decode_verified
from gpuinspect.cluster.release import own_plugins
from gpuinspect.cluster.snapshots import Snapshot


class VerifiedRow(msgspec.Struct, frozen=True):
    """One row on one GPU, by its index now; ``at`` is the Unix time of the run."""

    node: str
    gpu: str
    row: str
    verdict: str
    at: int


def verified_rows(snapshot: Snapshot, ledger: Ledger) -> tuple[VerifiedRow, ...]:
    """All results, by node, GPU and row."""
    return tuple(sorted(_rows(snapshot, ledger), key=lambda one: (one.node, one.gpu, one.row)))


def _rows(snapshot: Snapshot, ledger: Ledger) -> Iterator[VerifiedRow]:
    for pod, _ in own_plugins(snapshot):
        text = pod.annotations.get(VERIFIED, "")
        found = decode_verified(text) if text else None
        node_info = ledger.node(pod.node)
        if found is None or node_info is None:
            continue
        inventory = node_info.inventory
        for gpu, rows in by_index(found, inventory.gpus if inventory else ()).items():
            for row, verdict in rows.items():
                yield VerifiedRow(str(pod.node), gpu, row, verdict, found.at)
