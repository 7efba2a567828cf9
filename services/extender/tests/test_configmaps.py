"""ConfigMaps of the legacy list of unhealthy GPUs, read from lists and from lines of a watch."""

import json
from functools import partial
from typing import Any

import pytest

from gpucore.wire.configmaps import ConfigMap, decode_config_map
from gpucore.wire.errors import WireError
from gpucore.wire.lists import WatchEventType, event_of, page_of

UNHEALTHY = ConfigMap("unhealthy-gpu-n", {"a": "b"}, {"gpus": "1"}, "5")


def item(**more: Any) -> dict[str, Any]:
    """The ConfigMap as the API server has it."""
    metadata = {"name": "unhealthy-gpu-n", "labels": {"a": "b"}, "resourceVersion": "5"}
    return {"metadata": metadata | {"uid": "u"}, "data": {"gpus": "1"}, **more}


def line(kind: str, found: Any) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": found}).encode()


def test_a_page_leads_to_the_next_one() -> None:
    """Items, the version of the list, and the token of the next page."""
    metadata = {"resourceVersion": "9", "continue": "more"}
    page = page_of(
        json.dumps({"metadata": metadata, "items": [item()]}).encode(), decode_config_map
    )
    assert page.items == (UNHEALTHY,)
    assert (page.resource_version, page.continue_token) == ("9", "more")


@pytest.mark.parametrize("token", [{}, {"continue": None}, {"continue": ""}])
@pytest.mark.parametrize("items", [{}, {"items": None}, {"items": []}])
def test_the_last_page_may_be_empty(token: dict[str, Any], items: dict[str, Any]) -> None:
    """Go writes an empty list as null."""
    body = json.dumps({"metadata": {"resourceVersion": "9", **token}, **items}).encode()
    page = page_of(body, decode_config_map)
    assert (page.items, page.resource_version, page.continue_token) == ((), "9", "")


def test_a_config_map_without_labels_and_data_is_empty() -> None:
    """Null and absent are the same."""
    for absent in ({"metadata": {"name": "c"}}, {"metadata": {"name": "c", "labels": None}}):
        body = json.dumps({"metadata": {}, "items": [absent | {"data": None}]}).encode()
        assert page_of(body, decode_config_map).items == (ConfigMap("c", {}, {}, ""),)


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_has_the_config_map_and_its_version(kind: str) -> None:
    """The watch goes on from that version."""
    event = event_of(line(kind, item()), decode_config_map)
    assert (event.kind, event.item, event.resource_version) == (
        WatchEventType(kind),
        UNHEALTHY,
        "5",
    )


def test_a_bookmark_is_a_version_alone() -> None:
    """It moves the watch on and changes no object."""
    event = event_of(line("BOOKMARK", {"metadata": {"resourceVersion": "77"}}), decode_config_map)
    assert (event.kind, event.item, event.resource_version) == (WatchEventType.BOOKMARK, None, "77")


def test_an_error_has_no_object() -> None:
    """It carries a Status in place of one, which the informer reads."""
    event = event_of(line("ERROR", {"code": 410, "message": "too old"}), decode_config_map)
    assert (event.kind, event.item) == (WatchEventType.ERROR, None)


@pytest.mark.parametrize(
    "decode",
    [partial(page_of, decode=decode_config_map), partial(event_of, decode=decode_config_map)],
)
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"type": "ADDED"}'])
def test_what_cannot_be_read_is_an_error(decode: Any, body: bytes) -> None:
    """The informer lists again then."""
    with pytest.raises(WireError):
        decode(body)
