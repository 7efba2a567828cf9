"""The links of a node as the first topology plugin wrote them, for readers of that generation.

``{"GPU_NV2_0_1": "Two NVLinks", "GPU_SYS_0_4": "Cross CPU socket"}``: one link a pair, NVLinks
instead of the PCIe way where there are any.
"""

from typing import Final

import msgspec

from gpucore.model import Inventory

_WORDS: Final = {
    "PSB": "Same board",
    "PIX": "Single PCI switch",
    "PXB": "Multiple PCI switches",
    "PHB": "Host PCI bridge",
    "NODE": "Same CPU socket",
    "SYS": "Cross CPU socket",
    "NV1": "Single NVLink",
    "NV2": "Two NVLinks",
    "NV3": "Three NVLinks",
    "NV4": "Four NVLinks",
    "NV5": "Five NVLinks",
    "NV6": "Six NVLinks",
}


def topology_text(inventory: Inventory) -> str:
    """The text of the annotation; empty for a node without pairs of cards."""
    entries = {}
    for pair, kinds in sorted(inventory.links.items()):
        first, second = pair.split("-")
        kind = kinds[-1]  # the fastest way comes last
        entries[f"GPU_{kind}_{first}_{second}"] = _words(kind)
    return msgspec.json.encode(entries).decode() if entries else ""


def _words(kind: str) -> str:
    return _WORDS.get(kind, f"{kind.removeprefix('NV')} NVLinks")
