"""Last results of ``gpushare verify``, from the annotations of the device plugin's pods."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gpucore.wire.names import VERIFIED
from gpucore.wire.pod.spec import Pod
from gpucore.wire.verified import decode_verified

_COMPONENT: Final = "app.kubernetes.io/component"
_PLUGIN: Final = "device-plugin"


class VerifiedRow(msgspec.Struct, frozen=True):
    """One row on one GPU; ``at`` is the Unix time of the run."""

    node: str
    gpu: str
    row: str
    verdict: str
    at: int


def verified_rows(pods: Iterable[Pod]) -> tuple[VerifiedRow, ...]:
    """All results, by node, GPU and row."""
    return tuple(sorted(_rows(pods), key=lambda one: (one.node, one.gpu, one.row)))


def _rows(pods: Iterable[Pod]) -> Iterator[VerifiedRow]:
    for pod in pods:
        text = pod.annotations.get(VERIFIED, "")
        if not text or pod.labels.get(_COMPONENT) != _PLUGIN:
            continue
        found = decode_verified(text)
        for gpu, rows in (found.gpus if found else {}).items():
            for row, verdict in rows.items():
                yield VerifiedRow(str(pod.node), gpu, row, verdict, found.at if found else 0)
