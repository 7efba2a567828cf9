"""Numbers at the beginning of a word, as the C library of NVIDIA's program reads them."""

import re

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LIMIT = re.compile(r"\s*(?P<device>[+-]?\d+)\s+(?P<amount>\+?\d+)(?P<unit>.?)")
MIB_OF_A_GIB = 1024


def whole(text: str) -> int:
    """The integer that a text begins with; 0 where there is none."""
    found = _WHOLE.match(text)
    return int(found[0]) if found else 0


def decimal(text: str) -> float:
    """The number that a text begins with; 0 where there is none."""
    found = _DECIMAL.match(text)
    return float(found[0]) if found else 0.0


def limit(text: str) -> tuple[int, int]:
    """Device and limit in MiB of `DEVICE VALUE`.

    `G` and `g` are GiB, and any other letter, or none, is MiB. What is no limit is 0: no limit.
    """
    found = _LIMIT.match(text)
    if found is None:
        return whole(text.lstrip()), 0
    scale = MIB_OF_A_GIB if found["unit"] in {"G", "g"} else 1
    return int(found["device"]), int(found["amount"]) * scale


def size(mib: int) -> str:
    """A limit as the program prints it: whole GiB from one GiB on, cut off."""
    return f"{mib // MIB_OF_A_GIB}G" if mib >= MIB_OF_A_GIB else f"{mib}M"
