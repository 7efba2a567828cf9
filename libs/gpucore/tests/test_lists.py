"""Pages of a list and events of a watch."""

import msgspec
import pytest

from gpucore.wire.errors import WireError
from gpucore.wire.lists import (
    WatchEventType,
    decode_node_event,
    decode_nodes,
    decode_pod_event,
    decode_pods,
    event_of,
    page_of,
)
from gpucore.wire.node.spec import Node, decode_node

POD = b'{"metadata":{"uid":"u","namespace":"ns","name":"p","resourceVersion":"5"}}'
NODE = b'{"metadata":{"name":"n","resourceVersion":"6"}}'


def test_a_page_of_pods() -> None:
    """Items, version and the token of the next page."""
    page = decode_pods(
        b'{"metadata":{"resourceVersion":"9","continue":"c"},"items":[' + POD + b"]}"
    )
    assert [pod.name for pod in page.items] == ["p"]
    assert (page.resource_version, page.continue_token) == ("9", "c")


def test_a_page_of_nodes() -> None:
    """The last page has no token."""
    page = decode_nodes(b'{"metadata":{"resourceVersion":"9"},"items":[' + NODE + b"]}")
    assert [node.name for node in page.items] == ["n"]
    assert page.continue_token == ""


def test_an_empty_list_may_be_null() -> None:
    """Go writes null for a list without items."""
    raw = b'{"metadata":{"continue":null},"items":null}'
    assert decode_pods(raw).items == ()
    assert decode_nodes(raw).items == ()


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_events_carry_their_object(kind: str) -> None:
    """The object and its version arrive with the kind."""
    line = b'{"type":"' + kind.encode() + b'","object":%s}'
    pods, nodes = decode_pod_event(line % POD), decode_node_event(line % NODE)
    assert pods.kind == nodes.kind == WatchEventType(kind)
    assert pods.item is not None
    assert nodes.item is not None
    assert (pods.item.uid, pods.resource_version) == ("u", "5")
    assert (nodes.item.name, nodes.resource_version) == ("n", "6")


@pytest.mark.parametrize("decode", [decode_pod_event, decode_node_event])
def test_a_bookmark_carries_a_version(decode: object) -> None:
    """A bookmark has no object, only where to go on."""
    raw = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}'
    event = decode_pod_event(raw) if decode is decode_pod_event else decode_node_event(raw)
    assert (event.kind, event.item, event.resource_version) == (WatchEventType.BOOKMARK, None, "7")


@pytest.mark.parametrize("decode", [decode_pod_event, decode_node_event])
def test_an_error_has_no_object(decode: object) -> None:
    """The informer reads the status in the line itself."""
    raw = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}'
    event = decode_pod_event(raw) if decode is decode_pod_event else decode_node_event(raw)
    assert (event.kind, event.item) == (WatchEventType.ERROR, None)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b'{"type":"OTHER","object":{}}',
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{}}',
        b'{"type":"BOOKMARK","object":{}}',
        b'{"metadata":{},"items":[{}]}',
        b"[" * 200_000,
    ],
)
def test_other_bytes_are_the_modules_error(raw: bytes) -> None:
    """Bytes that are no event and no list raise WireError."""
    for decode in (decode_pod_event, decode_node_event, decode_pods, decode_nodes):
        with pytest.raises(WireError):
            decode(raw)


def refusing(raw: msgspec.Raw) -> Node:
    """Reads nodes whose name is not ``bad``."""
    node = decode_node(raw)
    if node.name == "bad":
        raise WireError("its name is bad")
    return node


BAD = b'{"metadata":{"namespace":"team","name":"bad","resourceVersion":"7"}}'


def test_an_object_that_cannot_be_decoded_hides_no_other_one() -> None:
    """The page has the others and names it, with or without metadata."""
    items = b",".join([NODE, BAD, b"3"])
    page = page_of(b'{"metadata":{"resourceVersion":"9"},"items":[' + items + b"]}", refusing)
    assert [each.name for each in page.items] == ["n"]
    assert page.resource_version == "9"
    first, second = page.unreadable
    assert first == "team/bad: its name is bad"
    assert second.startswith("an object without a name: ")


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_of_such_an_object_is_its_version(kind: str) -> None:
    """The watch goes on after it; an event without metadata has no version to go on from."""
    line = b'{"type":"' + kind.encode() + b'","object":%s}'
    event = event_of(line % BAD, refusing)
    assert (event.kind, event.item, event.resource_version) == (WatchEventType(kind), None, "7")
    assert event.unreadable == "team/bad: its name is bad"
    with pytest.raises(WireError):
        event_of(line % b"{}", refusing)
