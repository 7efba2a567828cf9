"""When a pod that is being deleted ends; the extender does not need it, so ``Pod`` has no field."""

import msgspec

from gpucore.wire.errors import decoded
from gpucore.wire.quantity import unix_seconds


class _Metadata(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


_DECODER = msgspec.json.Decoder(_Pod)


def deletion_end(raw: bytes | msgspec.Raw) -> float:
    """Unix seconds of a pod's ``metadata.deletionTimestamp``; 0 where it has none.

    The API server sets it to the time of the deletion plus the grace period, which is up to the
    author of the pod.

    Raises:
        WireError: the bytes are no pod.
    """
    return unix_seconds(decoded(_DECODER, raw, "no pod").metadata.deletion_timestamp)
