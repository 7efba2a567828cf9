"""The pods that the extender remembers, from its ConfigMap."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.wire.errors import WireError
from gpucore.workload.saved_history import KEY, SavedHistory, decode_history
from gpuinspect.cluster.extenders import extenders, flags_of
from gpuinspect.cluster.snapshots import Snapshot

_KIND: Final = "ConfigMap"


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: Mapping[str, str] | None = None


def saved_mix(snapshot: Snapshot, now: float) -> SavedHistory | None:
    """What the extender keeps; some of these pods are deleted.

    ``None`` where it keeps nothing, or where that cannot be read.

    Args:
        snapshot: the cluster.
        now: Unix seconds.
    """
    wanted = next((flags_of(raw).get("mix-history") for _, raw in extenders(snapshot)), None)
    for raw in snapshot.all(_KIND) if wanted else ():
        found = msgspec.json.decode(raw, type=_ConfigMap)
        text = (found.data or {}).get(KEY)
        if text and f"{found.metadata.namespace}/{found.metadata.name}" == wanted:
            try:
                return decode_history(text, now)
            except WireError:
                return None
    return None
