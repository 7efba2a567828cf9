"""The controller of a pod: the owner that creates another pod where this one goes."""

import msgspec

from gpucore.wire.errors import WireError


class Controller(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference with ``controller: true``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    owner_references: list[Controller] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


_DECODER = msgspec.json.Decoder(_Pod)


def controller_of(raw: bytes | msgspec.Raw) -> Controller | None:
    """The controller of a pod object; ``None`` where it has none.

    Raises:
        WireError: the bytes are no pod.
    """
    try:
        owners = _DECODER.decode(raw).metadata.owner_references or ()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"no pod: {error}") from error
    return next((owner for owner in owners if owner.controller), None)
