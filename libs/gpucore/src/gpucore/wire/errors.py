"""The error of the decoders: bytes or text that cannot be parsed.

Nothing else ever leaves ``gpucore.wire``, whatever is put in.
"""


class WireError(ValueError):
    """The input is not what the Kubernetes API, or the contract, promises."""
