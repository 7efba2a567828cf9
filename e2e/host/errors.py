"""The one error of a setup step, so that callers need to know a single name.

It promises a sentence a person can act on; it does not carry a machine-readable cause.
"""


class SetupError(Exception):
    """What a cluster or an image needs is missing or failed; `str()` states what to do about it."""
