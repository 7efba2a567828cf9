"""Owners choose by annotations what is done with sizes; text that is no choice allows nothing."""

import pytest

from gpucore.sizing.sizing_options import (
    MOST_UNITS,
    SizingMode,
    SizingOptions,
    original_units,
    sizing_options,
)

INITIAL = {"gpushare/sizing": "initial"}
MIN, MAX, EXACT = "gpushare/sizing-min", "gpushare/sizing-max", "gpushare/sizing-exact"


def test_without_annotations_nothing_is_done() -> None:
    """Owners opt in."""
    assert sizing_options({}, {}) == SizingOptions()
    assert SizingOptions().mode is SizingMode.OFF


@pytest.mark.parametrize(
    ("pod", "namespace", "mode"),
    [
        ({}, INITIAL, SizingMode.INITIAL),
        (INITIAL, {}, SizingMode.INITIAL),
        ({"gpushare/sizing": "off"}, INITIAL, SizingMode.OFF),
        (INITIAL, {"gpushare/sizing": "off"}, SizingMode.INITIAL),
        ({"gpushare/sizing": "recommend"}, INITIAL, SizingMode.RECOMMEND),
    ],
)
def test_the_annotation_of_the_pod_replaces_that_of_its_namespace(
    pod: dict[str, str], namespace: dict[str, str], mode: SizingMode
) -> None:
    """Either of them may opt in, and a pod may opt out."""
    assert sizing_options(pod, namespace) == SizingOptions(mode)


@pytest.mark.parametrize("text", ["true", "", "yes", "exact"])
def test_a_pod_whose_request_is_exact_keeps_it(text: str) -> None:
    """Any text but false counts, so that a mistake changes nothing."""
    assert sizing_options({**INITIAL, EXACT: text}, INITIAL) == SizingOptions()
    assert sizing_options({**INITIAL, EXACT: "false"}, {}).mode is SizingMode.INITIAL


def test_bounds_of_pod_and_namespace_are_taken_one_by_one() -> None:
    """A pod may have a minimum of its own below the maximum of its namespace."""
    found = sizing_options({MIN: "2"}, {**INITIAL, MIN: "4", MAX: "8"})
    assert found == SizingOptions(SizingMode.INITIAL, 2, 8)


@pytest.mark.parametrize("key", [MIN, MAX])
@pytest.mark.parametrize(
    "text", ["", "0", "-1", "2.5", "4Gi", "two", " 4", "٤", "9" * 40, str(MOST_UNITS), "1e3"]
)
def test_a_bound_that_is_no_number_of_units_turns_it_off(key: str, text: str) -> None:
    """The sentence names the annotation and the text, of which a long one is cut."""
    found = sizing_options({**INITIAL, key: text}, {})
    assert found.mode is SizingMode.OFF
    assert key in found.fault
    assert repr(text[:40]) in found.fault


def test_reversed_bounds_turn_it_off() -> None:
    """No size is within them."""
    found = sizing_options({**INITIAL, MIN: "8", MAX: "4"}, {})
    assert found.mode is SizingMode.OFF
    assert found.fault == f"annotation {MIN} is above {MAX}"


def test_an_unknown_mode_turns_it_off() -> None:
    """Also where the namespace has a known one."""
    found = sizing_options({"gpushare/sizing": "auto"}, INITIAL)
    assert found.mode is SizingMode.OFF
    assert found.fault == "annotation gpushare/sizing is 'auto': use off or recommend or initial"


@pytest.mark.parametrize(
    ("annotations", "units"),
    [
        ({}, None),
        ({"gpushare/original-memory": "8"}, (8, 0)),
        ({"gpushare/original-memory": "8", "gpushare/original-memory-limit": "12"}, (8, 12)),
        ({"gpushare/original-memory": "8", "gpushare/original-memory-limit": "x"}, (8, 0)),
        ({"gpushare/original-memory": "-8"}, None),
        ({"gpushare/original-memory": "9" * 30}, None),
        ({"gpushare/original-memory-limit": "12"}, None),
    ],
)
def test_a_resized_pod_has_its_original_size(
    annotations: dict[str, str], units: tuple[int, int] | None
) -> None:
    """Other text is none."""
    assert original_units(annotations) == units
