"""What the extender writes to its ConfigMap: the pods that it remembers, and the mix that it uses.

The mix is that of a process that runs while it was published after the start of one of the
extender's containers. A process that has just started publishes at once; until then, and beside an
extender that publishes nothing, the mix follows from the history and the pods that exist.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.pod.spec import Pod, created
from gpucore.workload import mix_in_use, saved_history
from gpucore.workload.mix_in_use import MixInUse, decode_mix
from gpucore.workload.saved_history import SavedHistory, decode_history
from gpuinspect.cluster.extenders import EXTENDER, extenders, flags_of
from gpuinspect.cluster.snapshots import Snapshot

_KIND: Final = "ConfigMap"
_FLAG: Final = "mix-history"
UNPUBLISHED: Final = (
    "the mix of pods that the extender uses could not be read; it was learned from the pods that"
    " exist, so the extender may choose other GPUs by the policy fragmentation"
)


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: Mapping[str, str] | None = None


class _Running(msgspec.Struct, rename="camel"):
    started_at: datetime | None = None


class _State(msgspec.Struct):
    running: _Running | None = None


class _Container(msgspec.Struct):
    name: str = ""
    state: _State | None = None


class _Status(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct):
    status: _Status | None = None


class SavedMix(msgspec.Struct, frozen=True):
    """What could be read.

    Attributes:
        history: the pods; some of them are deleted. ``None`` where it keeps none.
        published: the mix in use; ``None`` where a running extender has not published it.
        extender: the cluster has an extender.
    """

    history: SavedHistory | None = None
    published: MixInUse | None = None
    extender: bool = False

    @property
    def unpublished(self) -> bool:
        """The extender uses a mix that could not be read."""
        return self.extender and self.published is None


def saved_mix(snapshot: Snapshot, now: float) -> SavedMix:
    """What the extender keeps.

    Args:
        snapshot: the cluster.
        now: Unix seconds.
    """
    flagged = [(pod, raw, flags_of(raw).get(_FLAG)) for pod, raw in extenders(snapshot)]
    wanted = flagged[0][2] if flagged else None
    if not wanted:
        return SavedMix(extender=bool(flagged))
    data, namespace = _data(snapshot, wanted), wanted.partition("/")[0]
    starts = (
        _started(pod, raw)
        for pod, raw, where in flagged
        if where == wanted and pod.namespace == namespace
    )
    return SavedMix(
        _history(data.get(saved_history.KEY), now),
        _published(data.get(mix_in_use.KEY), min(starts, default=float("inf"))),
        extender=True,
    )


def _data(snapshot: Snapshot, wanted: str) -> Mapping[str, str]:
    for raw in snapshot.all(_KIND):
        found = msgspec.json.decode(raw, type=_ConfigMap)
        if f"{found.metadata.namespace}/{found.metadata.name}" == wanted:
            return found.data or {}
    return {}


def _history(text: str | None, now: float) -> SavedHistory | None:
    try:
        return decode_history(text, now) if text else None
    except WireError:
        return None


def _published(text: str | None, started: float) -> MixInUse | None:
    try:
        found = decode_mix(text) if text else None
    except WireError:
        return None
    return found if found is not None and found.time >= started else None


def _started(pod: Pod, raw: msgspec.Raw) -> float:
    """When its extender's container started, else when it was created, in Unix seconds."""
    status = msgspec.json.decode(raw, type=_Pod).status or _Status()
    for box in status.container_statuses or ():
        running = box.state.running if box.name == EXTENDER and box.state else None
        if running is not None and running.started_at is not None:
            return running.started_at.timestamp()
    return created(pod)
