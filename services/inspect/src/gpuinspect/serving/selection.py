"""Model servers selected by type and version, as ``--type`` and ``--version`` of arena do."""

from collections.abc import Iterable, Mapping
from typing import Final

from gpuinspect.serving.served import Serving

SUFFIX: Final = "-serving"
"""Ends each label of a type."""
_SHORT: Final[Mapping[str, str]] = {"tensorflow": "tf", "tensorrt": "trt", "kfserving": "kf"}
"""Arena's names whose label begins otherwise."""


def type_label(text: str) -> str:
    """The label of a type: ``tf-serving`` for ``tf``, ``Tensorflow`` and ``tf-serving``."""
    name = text.casefold().removesuffix(SUFFIX)
    return f"{_SHORT.get(name, name)}{SUFFIX}"


def selected(found: Iterable[Serving], kind: str = "", version: str = "") -> list[Serving]:
    """Those of a type and a version.

    Args:
        found: in any order, which is kept.
        kind: a label or one of arena's names; empty for all.
        version: as it was given when the model was served; empty for all.
    """
    return [
        each
        for each in found
        if (not kind or each.doc.type == type_label(kind)) and version in {"", each.doc.version}
    ]
