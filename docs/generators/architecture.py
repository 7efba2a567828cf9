"""The diagram of the architecture as SVG, from the list of its boxes and arrows.

``python docs/generators/architecture.py`` writes docs/images/architecture.svg.
"""
# ruff: noqa: INP001 - a script beside the pictures, no package

import sys
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

PATH: Final = Path(__file__).resolve().parents[1] / "images" / "architecture.svg"
WIDTH, HEIGHT = 960, 470
_INK, _PAPER, _OURS, _OTHERS = "#1f2933", "#ffffff", "#d5f0ec", "#eceff3"
_TITLE: Final = (
    "gpushare in a cluster: kube-scheduler calls the extender, which binds pods; kubelet calls the"
    " device plugin, which allocates GPUs"
)
_MARKER: Final = (
    '<defs><marker id="end" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
    f'<path d="M0,0 L9,4 L0,8 z" fill="{_INK}"/></marker></defs>'
)


class Box(NamedTuple):
    """A program; ``ours`` is one of this project's."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    ours: bool = True


class Arrow(NamedTuple):
    """Who calls whom, and with what."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    at: tuple[int, int]


FRAMES: Final = (
    Box(20, 50, 440, 290, "control plane", ours=False),
    Box(580, 50, 360, 400, "GPU node", ours=False),
)
BOXES: Final = (
    Box(40, 90, 180, 70, "kube-scheduler", ("queues, filters, binds",), ours=False),
    Box(40, 240, 180, 80, "gpushare-extender", ("ledger of every GPU:", "chooses node and GPU")),
    Box(280, 90, 160, 230, "API server", ("pods, nodes,", "bindings, claims"), ours=False),
    Box(600, 90, 320, 60, "kubelet", ("accounts device IDs for each GPU",), ours=False),
    Box(
        600,
        220,
        320,
        80,
        "gpushare-device-plugin",
        ("lists GPUs, allocates units,", "limits memory"),
    ),
    Box(600, 370, 140, 60, "NVIDIA driver", ("NVML, MPS",), ours=False),
    Box(760, 370, 160, 60, "container", ("its GPU and share",), ours=False),
    Box(
        40,
        375,
        400,
        75,
        "gpushare",
        ("command and dashboard: who uses which GPU,", "why a pod waits, what would help"),
    ),
)
ARROWS: Final = (
    Arrow((130, 160), (130, 240), "filter, prioritize,\nbind, preempt", (140, 194)),
    Arrow((220, 280), (280, 280), "Binding", (226, 272)),
    Arrow((440, 120), (600, 120), "watch pods", (470, 112)),
    Arrow((760, 150), (760, 220), "Allocate(device IDs)", (770, 190)),
    Arrow((600, 260), (440, 260), "inventory, corrections", (455, 252)),
    Arrow((675, 300), (675, 370), "health, limits", (685, 340)),
    Arrow((840, 300), (840, 370), "device, limits", (848, 340)),
    Arrow((360, 375), (360, 320), "list, watch", (370, 366)),
)


def _box(box: Box, colour: str) -> str:
    middle = box.x + box.width // 2
    rows = [
        (
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" '
            f'fill="{colour}" stroke="{_INK}"/>'
        ),
        (
            f'<text x="{middle}" y="{box.y + 24}" text-anchor="middle" font-weight="bold">'
            f"{escape(box.title)}</text>"
        ),
    ]
    for number, line in enumerate(box.lines):
        y = box.y + 44 + 18 * number
        rows.append(f'<text x="{middle}" y="{y}" text-anchor="middle">{escape(line)}</text>')
    return "\n".join(rows)


def _arrow(arrow: Arrow) -> str:
    (x1, y1), (x2, y2), (x, y) = arrow.start, arrow.end, arrow.at
    texts = "\n".join(
        f'<text x="{x}" y="{y + 16 * number}" font-size="13">{escape(line)}</text>'
        for number, line in enumerate(arrow.text.splitlines())
    )
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_INK}" marker-end="url(#end)"/>\n'
        f"{texts}"
    )


def drawn() -> str:
    """The diagram."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'font-family="sans-serif" font-size="14" fill="{_INK}">'
        ),
        f"<title>{_TITLE}</title>",
        _MARKER,
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{_PAPER}"/>',
        '<text x="20" y="30">coloured: parts of gpushare</text>',
        *(_box(frame, "none") for frame in FRAMES),
        *(_box(box, _OURS if box.ours else _OTHERS) for box in BOXES),
        *map(_arrow, ARROWS),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the file."""
    PATH.write_text(drawn(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
