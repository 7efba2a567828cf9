"""Lists as shorter lists, cut while their bytes arrive."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.wire.errors import WireError
from gpucore.wire.list_pieces import ListPieces
from gpucore.wire.lists import decode_nodes

Chunks = list[bytes]

TRAP = '},{"metadata":{"name":"none"}}],"items":['
"""Text of a tenant that looks like the end of an item."""
METADATA = {"resourceVersion": "9", "continue": ""}
names = st.lists(st.sampled_from(["a", "n" * 40, TRAP, 'é"\\']), max_size=12)


def item(name: str) -> dict[str, Any]:
    """A node, in the order in which an API server writes its parts."""
    inner = {"template": [{"x": 1}, {"metadata": {"name": name}}]}
    return {"metadata": {"name": name, "annotations": {TRAP: name}}, "spec": inner}


def encoded(document: Any, *, spaces: bool = False) -> bytes:
    """As JSON, without spaces unless told otherwise."""
    return json.dumps(document, separators=None if spaces else (",", ":")).encode() + b"\n"


def as_it_is(raw: bytes) -> bytes:
    """The bytes of a list."""
    decode_nodes(raw)
    return raw


def pieces_of(chunks: Chunks, *, size: int, decode: Callable[[bytes], bytes] = as_it_is) -> Chunks:
    """All pieces of a list that arrives so."""
    pieces = ListPieces(decode, size=size)
    return [piece for chunk in chunks for piece in pieces.add(chunk)] + [pieces.last()]


def in_chunks(raw: bytes, ends: list[int]) -> Chunks:
    """The bytes, with a new chunk at each of these offsets."""
    bounds = [0, *sorted(end % (len(raw) + 1) for end in ends), len(raw)]
    return [raw[a:b] for a, b in pairwise(bounds)]


@given(names, st.lists(st.integers(0, 1 << 16), max_size=20), st.integers(1, 500), st.booleans())
def test_all_items_arrive_once_and_in_order(
    listed: list[str], ends: list[int], size: int, spaces: bool
) -> None:
    """However the bytes come, whatever tenants write, with the metadata of the list each time."""
    head = {"kind": "NodeList", "apiVersion": "v1", "metadata": METADATA}
    raw = encoded({**head, "items": [item(name) for name in listed]}, spaces=spaces)
    pages = [decode_nodes(piece) for piece in pieces_of(in_chunks(raw, ends), size=size)]
    assert [node.name for page in pages for node in page.items] == listed
    assert {page.resource_version for page in pages} == {"9"}


def test_a_long_list_is_cut() -> None:
    """No piece is much longer than a chunk, and items come before the list is complete."""
    head = {"kind": "NodeList", "metadata": METADATA}
    raw = encoded({**head, "items": [item(f"n{number}") for number in range(1000)]})
    chunks = [raw[start : start + 1000] for start in range(0, len(raw), 1000)]
    found = pieces_of(chunks, size=1000)
    assert len(found) > 90
    assert max(map(len, found)) < 5000
    assert list(ListPieces(as_it_is, size=1000).add(raw[: len(raw) // 2]))


@pytest.mark.parametrize(
    "document",
    [
        {"items": [item("a"), item("b")], "kind": "NodeList", "metadata": METADATA},
        {"kind": "NodeList", "metadata": METADATA, "items": [{"kind": "Node", **item("a")}] * 3},
        {"kind": "NodeList", "metadata": METADATA, "items": None},
        {"kind": "NodeList", "metadata": METADATA, "items": []},
    ],
)
def test_a_list_that_is_written_otherwise_is_one_piece(document: Any) -> None:
    """With items before the metadata, or with the kind of each, as of a custom resource."""
    raw = encoded(document)
    [piece] = pieces_of([raw[:40], raw[40:]], size=10)
    assert json.loads(piece) == document


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"metadata":{},"items":7}', b"\xff" * 9])
def test_what_is_no_list_is_one_piece_that_nothing_decodes(raw: bytes) -> None:
    """The decoder of lists says what is wrong with it."""
    with pytest.raises(WireError, match="invalid list"):
        pieces_of([raw], size=1)


def test_a_list_that_ends_too_early_is_an_error() -> None:
    """A connection that broke must not look like a smaller cluster."""
    head = {"kind": "NodeList", "metadata": METADATA}
    raw = encoded({**head, "items": [item("a"), item("b")]})
    with pytest.raises(WireError, match="invalid list"):
        pieces_of([raw[:-4]], size=50)


def test_an_item_that_cannot_be_decoded_ends_the_list_where_it_comes() -> None:
    """The rest is not gathered in memory before the error is reported."""
    head = {"kind": "NodeList", "metadata": METADATA}
    bad = {"metadata": {"name": 7}}
    raw = encoded({**head, "items": [bad, *(item(f"n{number}") for number in range(1000))]})
    pieces = ListPieces(decode_nodes, size=1000)
    with pytest.raises(WireError, match="invalid list"):
        list(pieces.add(raw[: len(raw) // 10]))
