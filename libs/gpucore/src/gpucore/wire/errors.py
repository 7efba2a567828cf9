"""The one error of this boundary: bytes or text that do not say what they should.

Nothing else ever leaves ``gpucore.wire``, whatever is put in.
"""


class WireError(ValueError):
    """The input is not what the Kubernetes API, or the contract, promises."""
