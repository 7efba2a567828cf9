"""The one error of this package, so that callers need to know a single name.

It promises a sentence a person can act on; it does not carry a machine-readable cause.
"""


class ClusterError(Exception):
    """Something the cluster needs is missing or failed; `str()` says what to do about it."""
