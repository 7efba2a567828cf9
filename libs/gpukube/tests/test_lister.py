"""Lists of a collection, request by request: which query each page has, and what is handed over."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from gpucore.wire.lists import decode_node_event, decode_nodes
from gpucore.wire.node.spec import Node
from gpukube.testing.scripted import ScriptedClient, failure
from gpukube.watch.collection import Collection
from gpukube.watch.lister import Lister

CHOSEN = {"fieldSelector": "metadata.name=n"}
NODES = Collection(
    "nodes",
    "/api/v1/nodes",
    decode_nodes,
    decode_node_event,
    params=CHOSEN,
    version_path="/api/v1/one",
)


class Handler:
    """Records every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_replace(self, items: Iterable[Node]) -> None:
        self.calls.append([item.name for item in items])

    def on_update(self, item: Node, line: bytes) -> None:
        self.calls.append((item.name, line))

    def on_delete(self, item: Node) -> None:
        raise AssertionError("a list deletes nothing")


def page(*names: str, version: str, token: str = "") -> bytes:
    """One page of a list."""
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    items = [{"metadata": {"name": name}} for name in names]
    return json.dumps({"metadata": metadata, "items": items}).encode()


def lister(*replies: Any) -> tuple[Lister[Node], ScriptedClient, Handler]:
    """A lister over a client that replies so."""
    client, handler = ScriptedClient(*replies), Handler()
    return Lister(client, NODES, handler), client, handler


async def test_every_page_has_the_selector_and_its_token() -> None:
    """A later list is consistent: no page comes from the cache, whatever its version is."""
    one, client, handler = lister(
        page("a", version="9", token="t1"),
        page("b", version="9", token="t2"),
        page("c", version="9"),
    )
    assert await one.again() == (3, "9")
    assert handler.calls == [["a", "b", "c"]]
    assert {request.path for request in client.requests} == {"/api/v1/nodes"}
    limit = {**CHOSEN, "limit": "1000"}
    assert [request.body for request in client.requests] == [
        limit,
        {**limit, "continue": "t1"},
        {**limit, "continue": "t2"},
    ]


@pytest.mark.parametrize("in_pieces", [True, False])
async def test_the_first_list_comes_from_the_cache(in_pieces: bool) -> None:
    """In one piece after the other, or as a whole; with the selector too."""
    one, client, handler = lister(page("a", "b", version="7"))
    found = await (one.first_in_pieces() if in_pieces else one.first())
    assert found == (2, "7")
    assert handler.calls == ([("a", b""), ("b", b"")] if in_pieces else [["a", "b"]])
    [request] = client.requests
    assert request.body == {**CHOSEN, "resourceVersion": "0", "limit": "1000"}


@pytest.mark.parametrize("in_pieces", [True, False])
async def test_a_server_without_a_cache_sends_the_first_list_in_pages(in_pieces: bool) -> None:
    """The pages after the first one name their token and no version."""
    one, client, handler = lister(
        page("a", version="7", token="t1"), page("b", version="7", token="t2"), page(version="7")
    )
    found = await (one.first_in_pieces() if in_pieces else one.first())
    assert found == (2, "7")
    assert handler.calls == ([("a", b""), ("b", b"")] if in_pieces else [["a", "b"]])
    limit = {**CHOSEN, "limit": "1000"}
    assert [request.body for request in client.requests[1:]] == [
        {**limit, "continue": "t1"},
        {**limit, "continue": "t2"},
    ]


async def test_a_list_that_breaks_off_replaces_nothing() -> None:
    """Objects of the missing pages would look deleted."""
    one, _, handler = lister(page("a", version="9", token="t1"), failure(500))
    with pytest.raises(Exception, match="500"):
        await one.again()
    assert handler.calls == []


async def test_the_current_version_is_that_of_one_key() -> None:
    """By a name that no object needs to have; without resourceVersion it is a consistent read."""
    one, client, _ = lister(page(version="77"))
    assert await one.current_version() == "77"
    [request] = client.requests
    assert request.path == "/api/v1/one"
    assert request.body == {"fieldSelector": "metadata.name=gpushare-version-probe"}
