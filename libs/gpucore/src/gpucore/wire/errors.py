"""The error of the decoders: bytes or text that cannot be parsed.

Nothing else ever leaves ``gpucore.wire``, whatever is put in.
"""

from typing import TypeVar

import msgspec

from gpucore.wire.nesting import shallow

T = TypeVar("T")


class WireError(ValueError):
    """The input is not what the Kubernetes API, or the contract, promises."""


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | str | msgspec.Raw, fault: str) -> T:
    """The value that a decoder reads; what is nested too deep for it is ``null``.

    Args:
        fault: begins the message where it reads none, such as ``no pod``.

    Raises:
        WireError: it reads none.
    """
    try:
        try:
            return decoder.decode(raw)
        except RecursionError:
            return decoder.decode(shallow(raw.encode() if isinstance(raw, str) else bytes(raw)))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"{fault}: {error}") from error
