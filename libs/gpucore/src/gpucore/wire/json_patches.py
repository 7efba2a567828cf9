"""Operations of JSON patches on mappings, such as the annotations of an object."""

from collections.abc import Mapping
from typing import Any, Final

Change = dict[str, Any]
"""An operation of a JSON patch."""
ANNOTATIONS: Final = "/metadata/annotations"


def entry(mapping: str, key: str) -> str:
    """The path of an entry, for the path of its mapping."""
    return f"{mapping}/{key.replace('~', '~0').replace('/', '~1')}"


def set_entries(
    mapping: str, present: Mapping[str, Any] | None, texts: Mapping[str, str]
) -> list[Change]:
    """Set these entries of a mapping.

    Args:
        mapping: its path.
        present: what it has; empty where the object may lack it.
    """
    if not present:
        return [{"op": "add", "path": mapping, "value": dict(texts)}]
    return [{"op": "add", "path": entry(mapping, key), "value": texts[key]} for key in texts]
