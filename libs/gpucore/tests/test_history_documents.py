"""The document of histories is data of unknown origin: values within bounds, or an error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.sizing.history_documents import (
    MOST_BYTES,
    MOST_HISTORIES,
    decode_histories,
    decode_node_histories,
    encode_histories,
)
from gpucore.sizing.usage_history import LimitEvent, UsageHistory, WorkloadKey
from gpucore.wire.errors import WireError


def history(name: str = "server") -> UsageHistory:
    """A history with three samples."""
    found = UsageHistory(WorkloadKey("team", "Deployment", name, "main"), pods=1, starts=1)
    for used in (1, 2**30, 2**33):
        amounts = {"requested_bytes": 2**34, "limit_bytes": 2**34, "gpus": 2}
        found.record(1.7e9, used, **amounts, claims=True, sm_percent=40)
    found.fail(1.7e9, 2**34)
    found.reached = LimitEvent(1.6e9, 2**33)
    return found


def document(**changed: Any) -> dict[str, Any]:
    """A valid document as plain data, with changed fields of its history."""
    found: dict[str, Any] = json.loads(encode_histories("node", [history()]))
    found["items"][0].update(changed)
    return found


def test_what_is_written_is_read_again() -> None:
    """With every field."""
    histories = [history("one"), history("two")]
    assert decode_histories(encode_histories("node", histories)) == histories


def test_the_document_names_its_kind_and_version() -> None:
    """Readers of other languages rely on these names."""
    found = document()
    assert (found["apiVersion"], found["kind"]) == ("gpushare/v1", "UsageHistoryList")
    assert found["items"][0]["peakBytes"] == 2**33


@pytest.mark.parametrize(
    "changed",
    [
        {"samples": -1},
        {"samples": "many"},
        {"buckets": {"0": -1}},
        {"buckets": {"999": 1}},
        {"buckets": {"zero": 1}},
        {"buckets": [1, 2]},
        {"peakBytes": 2**60},
        {"peakBytes": 1.5},
        {"firstSeen": 1e300},
        {"key": "server"},
        {"key": {"namespace": "n" * 300, "kind": "", "name": "", "container": ""}},
        {"pods": None},
        {"ranOut": {"at": -1}},
        {"reached": 3},
        {"gpus": -1},
    ],
)
def test_a_value_of_a_wrong_type_or_range_is_an_error(changed: dict[str, Any]) -> None:
    """Nothing of such a document is taken over."""
    with pytest.raises(WireError, match="no usage history"):
        decode_histories(json.dumps(document(**changed)).encode())


def test_a_node_with_too_many_histories_writes_what_can_be_read() -> None:
    """A reader refuses a longer document as a whole."""
    histories = [history(f"w{number}") for number in range(MOST_HISTORIES + 1)]
    found = decode_node_histories(encode_histories("n7", histories))
    assert (found.node, list(found.items)) == ("n7", histories[:MOST_HISTORIES])


def test_too_many_histories_are_an_error() -> None:
    """Also where each of them is valid."""
    found = document()
    found["items"] *= MOST_HISTORIES + 1
    with pytest.raises(WireError, match="no usage history"):
        decode_histories(json.dumps(found).encode())


def test_a_huge_document_is_not_decoded() -> None:
    """Its size alone is the reason."""
    with pytest.raises(WireError, match="more than"):
        decode_histories(b" " * (MOST_BYTES + 1))
    raw = json.dumps(document()).encode()
    assert decode_histories(raw.ljust(MOST_BYTES))


def test_another_version_is_an_error() -> None:
    """It may mean other things by the same names."""
    with pytest.raises(WireError, match="no usage history"):
        decode_histories(json.dumps(document() | {"apiVersion": "gpushare/v2"}).encode())


def test_contradictions_are_corrected() -> None:
    """The number of samples is that of the buckets, and a start's peak is a peak."""
    changed = document(samples=9, buckets={"3": 4, "5": 0}, startPeakBytes=2**40)
    (found,) = decode_histories(json.dumps(changed).encode())
    assert (found.samples, found.buckets, found.peak_bytes) == (4, {3: 4}, 2**40)


def test_the_peak_of_a_week_is_at_most_the_peak_and_empty_buckets_are_none() -> None:
    """Otherwise a history would never fall to what its samples show."""
    changed = document(weekPeakBytes=2**50, smBuckets={"4": 0, "8": 3})
    (found,) = decode_histories(json.dumps(changed).encode())
    assert (found.week_peak_bytes, found.sm_buckets) == (2**33, {8: 3})
    (found,) = decode_histories(json.dumps(document(weekPeakBytes=5)).encode())
    assert (found.week_peak_bytes, found.peak_bytes) == (5, 2**33)


def test_failures_are_counted_where_the_last_one_is_known() -> None:
    """Their number is kept; without a time of any they are none."""
    (found,) = decode_histories(json.dumps(document(outOfMemory=3)).encode())
    assert found.out_of_memory == 3
    never = document(outOfMemory=3, ranOut={"at": 0}, lastSeen=0)
    (found,) = decode_histories(json.dumps(never).encode())
    assert (found.out_of_memory, found.ran_out) == (0, LimitEvent())


def test_the_last_failure_is_the_one_that_was_written() -> None:
    """Not a later one, and none of a container that never ran out of memory."""
    written = document(ranOut={"at": 1.5e9, "limitBytes": 7}, outOfMemory=2)
    (found,) = decode_histories(json.dumps(written).encode())
    assert (found.ran_out, found.out_of_memory) == (LimitEvent(1.5e9, 7), 2)
    never = document(ranOut={"at": 0}, outOfMemory=0)
    (found,) = decode_histories(json.dumps(never).encode())
    assert (found.ran_out, found.out_of_memory) == (LimitEvent(), 0)


def test_the_limit_of_an_earlier_versions_failure_is_the_larger_of_limit_and_request() -> None:
    """A share without a limit of its own may use its request."""
    for request, limit in ((2**34, 2**33), (2**33, 2**34)):
        changed = document(ranOut={"at": 0}, requestedBytes=request, limitBytes=limit)
        (found,) = decode_histories(json.dumps(changed).encode())
        assert found.ran_out == LimitEvent(1.7e9, 2**34)


def test_a_document_of_an_earlier_version_is_read() -> None:
    """It counts the times that a pod ran out of memory: the last one is as late as it can be."""
    found = document()
    for name in ("ranOut", "reached", "gpus", "claims"):
        del found["items"][0][name]
    (read,) = decode_histories(json.dumps(found).encode())
    assert (read.ran_out, read.reached) == (LimitEvent(1.7e9, 2**34), LimitEvent())
    assert (read.out_of_memory, read.gpus, read.claims) == (1, 0, False)


def test_an_event_is_not_later_than_the_last_sample() -> None:
    """Otherwise a clock that was wrong would keep a size for ever."""
    changed = document(ranOut={"at": 2**40, "limitBytes": 1}, outOfMemory=0)
    (read,) = decode_histories(json.dumps(changed).encode())
    assert (read.ran_out, read.out_of_memory) == (LimitEvent(1.7e9, 1), 1)
    (read,) = decode_histories(json.dumps(document(reached={"at": 2**40})).encode())
    assert read.reached == LimitEvent(1.7e9, 0)


def test_the_largest_allowed_list_is_small_enough_to_be_read() -> None:
    """All buckets of all histories in use, with long names."""
    full = history("n" * 60)
    full.buckets = dict.fromkeys(range(180), 10**7)
    full.samples = 180 * 10**7
    assert len(decode_histories(encode_histories("node", [full] * MOST_HISTORIES))) == 500


@pytest.mark.slow
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_any_other_bytes_are_an_error(raw: bytes) -> None:
    """And nothing but a WireError."""
    with pytest.raises(WireError):
        decode_histories(raw)
