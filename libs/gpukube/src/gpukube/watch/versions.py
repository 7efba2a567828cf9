"""Resource versions: whether the history of the API server went back, as after an etcd restore.

A resource version is a revision of etcd, so all versions of one collection can be compared as
numbers. A text that is not a number compares with nothing.
"""


def went_back(known: str, found: str) -> bool:
    """Whether ``found`` is older than ``known``, which was seen before it."""
    return found.isdecimal() and known.isdecimal() and int(found) < int(known)
