"""Selectors of claims: what is understood, what is named as unknown, and hostile texts."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.claims.selectors import excludes_driver, select, unknown_terms
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.names import CLAIM_DRIVER

GPU = SliceDevice(
    "gpu-0", 0, uuid="GPU-0", product="Tesla T4", isolation="mps", memory_mib=15 * 1024, numa=1
)
LIMITED = msgspec.structs.replace(GPU, max_shares=48)
DOMAIN = f"['{CLAIM_DRIVER}']"


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (f"device.driver == '{CLAIM_DRIVER}'", True),
        ('device.driver == "gpu.nvidia.com"', False),
        (f"device.driver != '{CLAIM_DRIVER}'", False),
        ("device.allowMultipleAllocations", True),
        ("!device.allowMultipleAllocations", False),
        ("device.allowMultipleAllocations == false", False),
        (f"device.driver == '{CLAIM_DRIVER}' && device.allowMultipleAllocations", True),
        (f"device.attributes{DOMAIN}.productName == 'Tesla T4'", True),
        (f"device.attributes{DOMAIN}['productName'] == 'A && B'", False),
        (f"device.attributes{DOMAIN}.index >= 1", False),
        (f"device.attributes{DOMAIN}.index == 0", True),
        (f"device.attributes{DOMAIN}.missing != 'x'", False),
        (f"device.attributes{DOMAIN}.isolation in ['mps', \"driver+mps\"]", True),
        (f"device.attributes{DOMAIN}.isolation in ['driver','driver+mps']", False),
        (f"device.attributes{DOMAIN}['isolation'] in [ 'a && b', 'mps' ] && true", True),
        (f"device.attributes{DOMAIN}.missing in ['x']", False),
        (f"device.attributes{DOMAIN}.index in ['0']", False),
        ("device.attributes['other.example'].index == 0", False),
        ("device.attributes['resource.kubernetes.io'].numaNode == 1", True),
        ("device.attributes['resource.kubernetes.io'].numaNode == 0", False),
        (f"device.capacity{DOMAIN}.memory.compareTo(quantity('15Gi')) >= 0", True),
        (f"device.capacity{DOMAIN}.memory.compareTo(quantity('16Gi')) >= 0", False),
        (f"device.capacity{DOMAIN}.memory.compareTo( quantity( '15Gi' ) ) < 0", False),
        ("true", True),
    ],
)
def test_simple_comparisons_are_evaluated(expression: str, matches: bool) -> None:
    """As kube-scheduler evaluates them."""
    assert select(GPU, [expression]).matches is matches
    assert unknown_terms([expression]) == ()


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (f"device.attributes{DOMAIN}.linkGroup != 'x'", True),
        (f"device.attributes{DOMAIN}.linkGroup in ['x']", True),
        ("device.attributes['other.example'].index == 0", True),
        (f"device.capacity{DOMAIN}.shares.compareTo(quantity('1')) >= 0", True),
        (f"device.attributes{DOMAIN}.index < 'x'", True),
        (f"device.attributes{DOMAIN}.index == 'x'", False),
        (f"device.attributes{DOMAIN}.linkGroup != 'x' && !device.allowMultipleAllocations", False),
        (f"device.attributes{DOMAIN}.linkGroup != 'x' && device.driver.size() > 99", False),
    ],
)
def test_a_missing_attribute_or_capacity_is_an_error(expression: str, *, error: bool) -> None:
    """Unless another term is false, or is not understood and so may be."""
    found = select(GPU, [expression])
    assert (found.matches, found.error) == (False, error)


def test_values_of_two_types_are_not_equal() -> None:
    """As kube-scheduler evaluates them."""
    assert select(GPU, [f"device.attributes{DOMAIN}.index != '0'"]).matches


@pytest.mark.parametrize(("name", "amount"), [("shares", 48), ("compute", 100)])
def test_the_other_capacities_are_compared_too(name: str, amount: int) -> None:
    """With the numbers that the ResourceSlice has."""
    text = f"device.capacity{DOMAIN}.{name}.compareTo(quantity('{amount}')) == 0"
    assert select(LIMITED, [text]).matches
    assert not select(LIMITED, [text.replace("==", ">")]).matches


@pytest.mark.parametrize(
    "expression",
    [
        f"device.attributes{DOMAIN}.productName.startsWith('Tesla')",
        "device.driver == 'a' || device.driver == 'b'",
        "device.allowMultipleAllocations ? true : false",
        f"device.capacity{DOMAIN}.memory.compareTo(quantity('many')) >= 0",
        "cel.bind(x, device.driver, x == 'a' && x == 'b')",
        "x" * 5000,
        f"device.attributes{DOMAIN}.isolation in ['mps', device.driver]",
        f"device.attributes{DOMAIN}.isolation in []",
        f"device.attributes{DOMAIN}.isolation in ['mps',]",
        f"!(device.attributes{DOMAIN}.isolation in ['mps'])",
    ],
)
def test_what_is_not_understood_excludes_nothing_and_is_named(expression: str) -> None:
    """A guess could make a pod look impossible."""
    assert select(GPU, [expression]).matches
    (named,) = unknown_terms([expression])
    assert len(named) <= 203


def test_a_term_that_is_understood_still_excludes() -> None:
    """Beside one that is not."""
    unknown = f"device.attributes{DOMAIN}.productName.startsWith('Tesla')"
    found = select(GPU, [f"{unknown} && device.driver == 'gpu.nvidia.com'"])
    assert (found.matches, found.failed) == (False, "device.driver == 'gpu.nvidia.com'")


def test_another_driver_is_recognized() -> None:
    """Its devices are judged by that driver."""
    assert excludes_driver(CLAIM_DRIVER, ["device.driver == 'nic.example.com'"])
    assert not excludes_driver(CLAIM_DRIVER, [f"device.driver == '{CLAIM_DRIVER}'"])
    assert not excludes_driver(CLAIM_DRIVER, ["device.driver == 'a' || true"])


def test_control_characters_are_not_shown() -> None:
    """The author of a claim writes to the terminal of whoever explains it."""
    (named,) = unknown_terms(["device.x == '\x1b[2J' + '\x07'"])
    assert named.isprintable()


@given(st.text(alphabet="'\"&|()!=<>device.drivattributes[]\\ \n", max_size=400))
def test_no_text_is_an_error(expression: str) -> None:
    """Whatever the API server let through."""
    select(GPU, [expression])
    assert all(text.isprintable() for text in unknown_terms([expression]))


@pytest.mark.budget
def test_a_hostile_text_takes_no_time() -> None:
    """4,096 characters of every kind that the patterns repeat."""
    begin = time.process_time()
    for part in ("'", "&&", "(&&", "device.attributes['", "!", "a' && 'b"):
        select(GPU, [part * (4000 // len(part))])
    assert time.process_time() - begin < 5
