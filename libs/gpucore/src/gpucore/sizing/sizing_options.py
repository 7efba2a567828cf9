"""What the owner of a pod allows to be done with its size, from annotations.

Each annotation of the pod replaces that of its namespace. Text that is no known value allows
nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.wire.names import (
    ORIGINAL_MEMORY,
    ORIGINAL_MEMORY_LIMIT,
    SIZING,
    SIZING_EXACT,
    SIZING_MAX,
    SIZING_MIN,
)
from gpucore.wire.quantity import number

MOST_UNITS: Final = 1 << 20
"""Units that a bound or an original size may have: more than any GPU, even in MiB."""


class SizingMode(StrEnum):
    """What is done with a recommended size."""

    OFF = "off"
    RECOMMEND = "recommend"
    INITIAL = "initial"


class SizingOptions(msgspec.Struct, frozen=True):
    """The choice of the owner.

    Attributes:
        mode: what is done.
        least, most: bounds of the request in units; 0 none.
        fault: why an annotation is not usable, as a sentence; the mode is ``off`` then.
    """

    mode: SizingMode = SizingMode.OFF
    least: int = 0
    most: int = 0
    fault: str = ""


def sizing_options(pod: Mapping[str, str], namespace: Mapping[str, str]) -> SizingOptions:
    """The choice in the annotations of a pod and of its namespace."""
    if pod.get(SIZING_EXACT, "false") != "false":
        return SizingOptions()
    texts = {**_chosen(namespace), **_chosen(pod)}
    mode = texts.get(SIZING, SizingMode.OFF)
    if mode not in set(SizingMode):
        accepted = " or ".join(SizingMode)
        return SizingOptions(fault=f"annotation {SIZING} is {mode[:40]!r}: use {accepted}")
    return _bounded(SizingMode(mode), texts)


def original_units(annotations: Mapping[str, str]) -> tuple[int, int] | None:
    """Request and limit that a resized pod had before; ``None`` for any other pod.

    The limit is 0 for a pod without a burst limit.
    """
    request = _units(annotations.get(ORIGINAL_MEMORY, ""))
    limit = _units(annotations.get(ORIGINAL_MEMORY_LIMIT, ""))
    return (request, limit or 0) if request else None


def _bounded(mode: SizingMode, texts: Mapping[str, str]) -> SizingOptions:
    bounds = {}
    for key in (SIZING_MIN, SIZING_MAX):
        bounds[key] = _units(texts[key]) if key in texts else 0
        if bounds[key] is None:
            fault = f"annotation {key} is {texts[key][:40]!r}: use a number of units from 1 on"
            return SizingOptions(fault=fault)
    least, most = bounds[SIZING_MIN] or 0, bounds[SIZING_MAX] or 0
    if most and least > most:
        return SizingOptions(fault=f"annotation {SIZING_MIN} is above {SIZING_MAX}")
    return SizingOptions(mode, least, most)


def _units(text: str) -> int | None:
    """A number of units from 1 on; ``None`` for other text."""
    return number(text, below=MOST_UNITS) or None


def _chosen(annotations: Mapping[str, str]) -> dict[str, str]:
    keys = (SIZING, SIZING_MIN, SIZING_MAX)
    return {key: annotations[key] for key in keys if key in annotations}
