"""What a tenant nests deep is ``null`` to every reader, and all else is read as it is."""

import json
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.errors import (
    DEEPEST,
    WireError,
    decoded,
    has_more_values,
    parsable,
    shallow,
)
from gpucore.wire.lists import decode_pod_event, decode_pods, page_of

DEPTH = max(sys.getrecursionlimit(), 5000) * 2
"""Deeper than any parser goes; a ResourceClaim may have 10 KiB of parameters."""
DEEP = b'{"a":' * DEPTH + b'"]}"' + b"}" * DEPTH

values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{}[]",\\a:é'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='{}[]"\\a', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_what_is_not_deep_stays(value: object) -> None:
    """Brackets and quotation marks in strings are text."""
    raw = json.dumps(value, ensure_ascii=False).encode()
    assert shallow(raw) == raw


@given(values, st.integers(1, 30))
def test_a_deep_value_is_null_and_its_neighbours_stay(value: object, more: int) -> None:
    """Nothing before and after it changes."""
    levels = DEEPEST - 1 + more
    deep = "[" * levels + '"]"' + "]" * levels
    text = json.dumps(value)
    raw = f'{{"before": {text}, "deep": {deep}, "after": {text}}}'.encode()
    found = json.loads(shallow(raw))
    assert (found["before"], found["after"]) == (value, value)
    innermost, level = found["deep"], 1
    while innermost:
        (innermost,), level = innermost, level + 1
    assert (innermost, level) == (None, DEEPEST)


@pytest.mark.parametrize("value", ["[]", '{"a":[]}', '["]",[]]'])
def test_many_deep_values_are_cut_where_they_are_fewest(value: str) -> None:
    """A look at each of them held up every other request; a tenant writes 500,000 in one pod."""
    values = ",".join([value] * 10_000)
    raw = ('{"a":' + "[" * (DEEPEST - 1) + values + "]" * (DEEPEST - 1) + "}").encode()
    assert shallow(raw).count(b"null") == 1


@given(values, st.integers(0, 60))
def test_values_are_strings_arrays_and_objects(value: object, most: int) -> None:
    """Quotation marks and brackets in strings are none."""
    raw = json.dumps(value).encode()
    assert has_more_values(raw, most) is (number_of_values(value) > most)


def number_of_values(value: object) -> int:
    """The strings, arrays and objects of a value; each key of an object is a string."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(number_of_values, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(number_of_values, value))
    return isinstance(value, str)


def item(name: str, **metadata: object) -> bytes:
    """An object of the API server."""
    return msgspec.json.encode({"metadata": {"name": name, "uid": name, **metadata}, "spec": {}})


def test_a_pod_with_deep_managed_fields_hides_no_other_pod() -> None:
    """In a list and in a watch; the API server keeps what a tenant writes there."""
    fields = [{"manager": "m", "fieldsV1": msgspec.Raw(DEEP)}]
    deep = item("deep", managedFields=fields, resourceVersion="7")
    raw = b'{"metadata":{"resourceVersion":"9"},"items":[' + item("a") + b"," + deep + b"]}"
    assert [pod.name for pod in decode_pods(raw).items] == ["a", "deep"]
    event = decode_pod_event(b'{"type":"ADDED","object":' + deep + b"}")
    assert event.item is not None
    assert (event.item.name, event.resource_version) == ("deep", "7")


def test_a_claim_with_deep_parameters_hides_no_other_claim() -> None:
    """They are those of any driver."""
    opaque = {"opaque": {"driver": "d.example", "parameters": msgspec.Raw(DEEP)}}
    claim = {"metadata": {"name": "deep"}, "spec": {"devices": {"config": [opaque]}}}
    listed = msgspec.json.encode({"metadata": {}, "items": [claim]})
    assert [found.name for found in page_of(listed, decode_claim).items] == ["deep"]


def deeper(raw: bytes, frames: int) -> object:
    """The value of a text that is parsed this many frames further down the stack."""
    return deeper(raw, frames - 1) if frames else msgspec.json.decode(raw)


def test_what_is_parsable_can_be_parsed_deeper_in_the_stack() -> None:
    """Whatever its depth is, a text that parsable() returns parses 400 frames further down."""
    for levels in range(1, sys.getrecursionlimit() + 100, 7):
        assert deeper(parsable(b'{"a":' * levels + b"1" + b"}" * levels), 400) is not None


def test_a_text_of_usual_depth_stays_as_it_is() -> None:
    """Neither JSON of a few levels nor a text that is no JSON is changed."""
    for raw in (b'{"a":' * 60 + b"1" + b"}" * 60, b"ok", b"[" * 60, b""):
        assert parsable(raw) is raw


UNENDED = (b'"' + b'\\"' * 300_000, b'"' + b"\\" * 300_001, b'"' * 300_001)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "raw", [DEEP[:-1], b"[" * DEPTH, b"]" * DEPTH, *(DEEP[:-1] + text for text in UNENDED)]
)
def test_a_deep_text_that_is_no_json_is_an_error(raw: bytes) -> None:
    """Of the usual kind, and found in one pass over the text."""
    with pytest.raises(WireError):
        decoded(msgspec.json.Decoder(dict[str, object]), raw, "nothing")
