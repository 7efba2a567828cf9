"""JSON patches as an API server applies them, as far as the programs here send them."""

import copy
from collections.abc import Sequence
from typing import Any


class PatchError(Exception):
    """The patch does not apply, so nothing of it does."""


def patched(item: dict[str, Any], operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The object after a patch, with a new version; empty maps of metadata are dropped.

    Raises:
        PatchError: a test failed, or a place is not there.
    """
    made = copy.deepcopy(item)
    for operation in operations:
        *folders, last = (_plain(part) for part in operation["path"].split("/")[1:])
        place = made
        for folder in folders:
            if folder not in place:
                raise PatchError(operation["path"])
            place = place[folder]
        _apply(place, last, operation)
    metadata = made["metadata"]
    metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
    for name in [key for key in ("annotations", "labels") if metadata.get(key) == {}]:
        del metadata[name]
    return made


def _apply(place: dict[str, Any], last: str, operation: dict[str, Any]) -> None:
    if operation["op"] != "add" and last not in place:
        raise PatchError(operation["path"])
    match operation["op"]:
        case "test":
            if place[last] != operation["value"]:
                raise PatchError(operation["path"])
        case "add" | "replace":
            place[last] = copy.deepcopy(operation["value"])
        case "remove":
            del place[last]
        case other:
            raise AssertionError(other)


def _plain(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
