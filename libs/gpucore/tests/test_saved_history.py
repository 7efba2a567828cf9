"""The history of pods outlives the process: what is saved and read gives the same mix."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.model.constraints import NodeSelectorTerm, Requirement
from gpucore.steps import complete
from gpucore.units import PodUid
from gpucore.wire.errors import WireError
from gpucore.workload.arrivals import (
    EMPTY,
    HALF_LIFE_SECONDS,
    LATEST_SECONDS,
    MOST_BYTES,
    MOST_PARTS,
    VERSION,
    Arrival,
    NodeLabels,
    SavedHistory,
    SavedPart,
    decode_history,
    encode_history,
)
from gpucore.workload.history import FEWEST_PODS, SETTLED_SECONDS, PodHistory
from gpucore.workload.pod_mix import PodKind

NOW = 1_800_000_000.0
DAY = 86_400.0
T4 = NodeLabels((("gpu", "t4"),), (NodeSelectorTerm((Requirement("zone", "In", ("a", "b")),)),))
KINDS = (PodKind(mem=4, core=25), PodKind(gpus=8), PodKind(mem=2, cpu_milli=2000, memory_mib=4096))
Pods = dict[PodUid, Arrival]


def history(pods: Pods, saved: str = "") -> PodHistory:
    """A process that starts with what was saved and then lists these pods."""
    found = PodHistory()
    if saved:
        found.restore(decode_history(saved, NOW))
    for uid, arrival in pods.items():
        found.note(uid, arrival)
    return found


def text_of(found: PodHistory) -> str:
    """What the process saves."""
    return encode_history(complete(found.saved()))


def parts(found: PodHistory) -> dict[PodKind, float]:
    """The learned mix, as it adds up to 1; kinds of less than a millionth are left out."""
    weights = complete(found.weights(lambda one: ("T4",) if one == T4 else ()))
    total = sum(weights.values())
    return {kind: w / total for kind, w in weights.items() if w > 1e-6 * total}


def arrivals(minimum: int = FEWEST_PODS) -> st.SearchStrategy[list[Arrival]]:
    """Pods of the last two weeks; the newest is of now."""
    one = st.builds(
        Arrival,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(KINDS),
        st.sampled_from([NodeLabels(), T4]),
        st.integers(0, 14 * 24 * 60).map(lambda minutes: NOW - 60.0 * minutes - 1),
        st.sampled_from([0, 4096]),
    )
    newest = Arrival("a", KINDS[0], created=NOW)
    return st.lists(one, min_size=minimum, max_size=60).map(lambda found: [*found, newest])


@pytest.mark.slow
@settings(max_examples=30)
@given(arrivals(), st.data())
def test_a_restart_gives_the_same_mix(found: list[Arrival], data: st.DataObject) -> None:
    """Whatever pods were deleted before; a pod that exists is not counted twice. Twice in a row."""
    pods = {PodUid(f"{number}"): each for number, each in enumerate(found)}
    before = history(pods)
    saved = text_of(before)
    for _ in range(2):
        old = [uid for uid, each in pods.items() if each.created < NOW - SETTLED_SECONDS]
        for uid in data.draw(st.sets(st.sampled_from(old))) if old else ():
            pods.pop(uid, None)
        after = history(pods, saved)
        assert parts(after) == pytest.approx(parts(before), abs=1e-4)
        assert len(after) == len(before)
        saved = text_of(after)


def test_a_history_that_is_read_after_the_pods_counts_none_twice() -> None:
    """The first read may fail, and pods are listed meanwhile."""
    pods = {PodUid(f"{n}"): Arrival("a", KINDS[n % 3], created=NOW - 60.0 * n) for n in range(40)}
    before = history(pods)
    after = history(pods)
    after.restore(decode_history(text_of(before), NOW))
    assert parts(after) == pytest.approx(parts(before), abs=1e-4)
    assert len(after) == len(before)


def test_the_selectors_of_what_was_saved_are_evaluated_again() -> None:
    """By the nodes of now, as those of pods that exist."""
    old = {PodUid("old"): Arrival("a", KINDS[0], T4, created=NOW - DAY)}
    new = {PodUid("new"): Arrival("a", KINDS[0], created=NOW)}
    assert T4 in complete(history(new, text_of(history(old | new))).selectors())


def test_what_was_saved_counts_less_with_time() -> None:
    """As the pods themselves would: half after the half-life."""
    part = SavedPart("a", 40.0, gpus=8)
    saved = SavedHistory(NOW - HALF_LIFE_SECONDS, 40, (part,), VERSION)
    pods = {PodUid(f"{n}"): Arrival("a", KINDS[0], created=NOW) for n in range(20)}
    assert parts(history(pods, encode_history(saved))) == {KINDS[0]: 0.5, KINDS[1]: 0.5}


def test_nothing_is_saved_anew_without_new_pods() -> None:
    """So nothing is written; the pods of the last minute are not saved."""
    pods = {PodUid(f"{n}"): Arrival("a", KINDS[0], created=NOW - n) for n in range(60)}
    assert complete(history(pods).saved()).pods == 0
    old = {PodUid("old"): Arrival("a", KINDS[0], created=NOW - DAY)}
    found = history(pods | old)
    assert complete(found.saved()).pods == 1
    again = history(pods, text_of(found))
    assert complete(again.saved()) is again._earlier
    assert complete(PodHistory().saved()) is EMPTY


def odd_pods(count: int, size: int = 0) -> Pods:
    """Pods that all differ, each with a selector of this size, and usual ones."""
    usual = {PodUid(f"usual-{n}"): Arrival("a", KINDS[0], created=NOW - DAY) for n in range(99)}
    odd = {
        PodUid(f"odd-{n}"): Arrival(
            "odd",
            PodKind(mem=n + 1),
            NodeLabels((("key", f"{n}" * size),)) if size else NodeLabels(),
            created=NOW - DAY,
        )
        for n in range(count)
    }
    return odd | usual | {PodUid("new"): Arrival("a", KINDS[0], created=NOW)}


@pytest.mark.parametrize(("count", "size"), [(MOST_PARTS + 50, 0), (300, 400), (5, 5000)])
def test_the_document_is_bounded_and_keeps_what_counts_most(count: int, size: int) -> None:
    """A tenant with odd pods does not push out the usual ones, and no selector is too long."""
    text = text_of(history(odd_pods(count, size)))
    assert len(text.encode()) <= MOST_BYTES
    found = decode_history(text, NOW)
    assert len(found.parts) <= MOST_PARTS
    assert (found.parts[0].namespace, found.parts[0].mem) == ("a", 4)
    if count == 5:
        assert [each.selector for each in found.parts] == [NodeLabels()] * 6


def test_an_amount_that_is_out_of_range_is_left_out() -> None:
    """The API server accepts larger ones than a document may have; the others are saved."""
    pods = odd_pods(0) | {
        PodUid("huge"): Arrival("odd", PodKind(mem=2**60), created=NOW - DAY),
        PodUid("no time"): Arrival("odd", PodKind(mem=1)),
    }
    assert [each.mem for each in complete(history(pods).saved()).parts] == [4]


def edited(**fields: Any) -> str:
    """A document with other fields, or other fields of its only part."""
    found = json.loads(encode_history(SavedHistory(NOW, 1, (SavedPart("a", 1.0),), VERSION)))
    part = {key[5:]: fields.pop(key) for key in list(fields) if key.startswith("part_")}
    return json.dumps(found | fields | {"parts": [found["parts"][0] | part]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"metadata": {"name": "other"}}',
        "[" * 5000,
        edited() + " " * MOST_BYTES,
        edited(version=2),
        edited(until=NOW + LATEST_SECONDS + 1),
        edited(until=-1),
        edited(until="soon"),
        edited(pods=10**9),
        edited(part_weight=-1),
        edited(part_weight=1e300),
        edited(part_mem=2**60),
        edited(part_gpus=-1),
        edited(part_namespace="x" * 254),
        edited(part_selector={"labels": [["a"]]}),
        '{"parts": [' + ",".join(['{"namespace":"a","weight":1}'] * (MOST_PARTS + 1)) + "]}",
    ],
)
def test_foreign_and_broken_documents_are_refused(text: str) -> None:
    """With an error that is a sentence; nothing of them is taken over."""
    with pytest.raises(WireError, match="history of pods"):
        decode_history(text, NOW)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_a_history_or_an_error(text: str) -> None:
    """Never another exception."""
    with suppress(WireError):
        assert decode_history(text, NOW).version == VERSION


def test_a_document_that_was_edited_is_read_where_it_is_valid() -> None:
    """The cases above fail for the one field that they change."""
    found = decode_history(edited(), NOW)
    assert found.parts == (SavedPart("a", 1.0),)
    assert msgspec.structs.asdict(found)["version"] == 1
