"""What a viewer of the cluster page has chosen, as the query of its address."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from gpuinspect.queries.gpumap import GROUPS, LABEL

SHOWS: Final = ("allocated", "in use", "health", "namespace", "waste")
"""What cells are coloured by; waste is memory that is allocated and not in use."""
ORDERS: Final = ("name", "free", "used")
MOST_GIB: Final = 99_999
UNNAMED: Final = "-"
"""Address of the group without a name; no label has this value."""
_LONGEST: Final = 320  # characters of the key of a label with its prefix


class Choices(msgspec.Struct, frozen=True):
    """The choices; default values stand for none.

    Attributes:
        q: part of the name of a node or pod.
        by: what the map is grouped by, unless ``label`` is a key.
        show: what its cells are coloured by.
        gib: size of a share in GiB, whose places are lit; 0 for none.
        sort: order of the rows.
        at: the chosen GPU as ``NODE/INDEX``, or a node.
        group: the chosen group.
        rows: ``all`` for the rows of all nodes, in place of the map.
        page: number of the page of rows; 0 for none.
    """

    q: str = ""
    by: str = GROUPS[0]
    label: str = ""
    show: str = SHOWS[0]
    gib: int = 0
    sort: str = ORDERS[0]
    at: str = ""
    group: str = ""
    rows: str = ""
    page: int = 0

    @property
    def grouping(self) -> str:
        """One of :data:`~gpuinspect.queries.gpumap.GROUPS`, or ``label:KEY``."""
        return f"{LABEL}{self.label}" if self.label else self.by

    @property
    def made(self) -> bool:
        """Nodes are chosen."""
        return bool(self.q or self.at or self.group or self.listed)

    @property
    def listed(self) -> bool:
        """All nodes are shown as rows, in place of the map."""
        return bool(self.rows or self.page) and not (self.at or self.group or self.q)

    def kept(self, *without: str) -> dict[str, str]:
        """Names and texts of the choices that are made, but for those named."""
        fields = msgspec.structs.asdict(self)
        defaults = msgspec.structs.asdict(Choices())
        return {
            name: str(value)
            for name, value in fields.items()
            if value != defaults[name] and name not in without
        }

    def address(self, *without: str, anchor: str = "", **changed: str | int) -> str:
        """The cluster page with these choices and others."""
        query = urlencode({**self.kept(*without), **changed})
        return f"/{'?' if query else ''}{query}{anchor}"


def choices_of(query: Mapping[str, str]) -> Choices:
    """The choices in the query of an address; text that is none counts as the default."""
    return Choices(
        q=searched(query),
        by=_one_of(query.get("by", ""), GROUPS),
        label=query.get("label", "").strip()[:_LONGEST],
        show=_one_of(query.get("show", ""), SHOWS),
        gib=min(_number(query.get("gib", "")), MOST_GIB),
        sort=_one_of(query.get("sort", ""), ORDERS),
        at=query.get("at", ""),
        group=query.get("group", ""),
        rows="all" if query.get("rows") == "all" else "",
        page=_number(query.get("page", "")),
    )


def searched(query: Mapping[str, str]) -> str:
    """The part of a name to search for; names are lower-case, and a phone capitalises letters."""
    return query.get("q", "").strip().lower()


def _one_of(text: str, known: tuple[str, ...]) -> str:
    return text if text in known else known[0]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
