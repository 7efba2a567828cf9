"""The notice of an eviction on an idle pod: an annotation that its tenant can read, and can forge.

A notice counts for the pod whose UID it has, and only from a time on at which that pod was idle
already. So a copy in a template counts for no pod, and use of the GPU ends a notice. Whatever a
tenant writes concerns the pod that it is written on.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from gpucore.units import PodUid
from gpucore.wire.names import IDLE_NOTICE

_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**37)]
"""Unix time; the end is a date that every program can write."""


class IdleNotice(msgspec.Struct, frozen=True, rename="camel"):
    """What the annotation has.

    Attributes:
        pod: UID of the pod that was noticed.
        noticed_at: Unix seconds of the notice.
        evict_after: Unix seconds before which the pod is not evicted, as its owner was told.
    """

    pod: str
    noticed_at: _Seconds
    evict_after: _Seconds


def notice_text(notice: IdleNotice) -> str:
    """The value of the annotation."""
    return msgspec.json.encode(notice).decode()


def notice_of(
    annotations: Mapping[str, str], uid: PodUid, *, idle_since: float, now: float
) -> IdleNotice | None:
    """The notice that a pod has had since it became idle; ``None`` where it has none that counts.

    Args:
        annotations: of the pod.
        uid: of the pod.
        idle_since: Unix seconds from which on it used nothing.
        now: Unix seconds.
    """
    try:
        found = msgspec.json.decode(annotations.get(IDLE_NOTICE, ""), type=IdleNotice)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    counts = found.pod == uid and idle_since <= found.noticed_at <= now
    return found if counts else None
