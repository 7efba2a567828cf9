"""How much a pod may use beyond its share, and that it is never more than the GPU has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from nodepods import make_gpu

from gpucore.accounting.device_info import burst_units
from gpucore.model import IsolationMode
from gpucore.node.allocation.reading import expected_of
from gpucore.node.isolation.driver_limits import MemoryLimit, memory_limit
from gpucore.units import GIB, MemoryUnit, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Container, Pod
from gpucore.wire.whole_requests import pod_request_of

LIMIT = "gpushare/memory-limit"
KAI = "nvidia.com/container.{}.gpu-memory.limit"


def pod(*units: int, labels: dict[str, str] | None = None, **annotations: str) -> Pod:
    """A bound pod with containers c0, c1 ... of so many units."""
    spelled = {
        LIMIT if key == "limit" else KAI.format(key): annotations[key] for key in annotations
    }
    containers = tuple(
        Container(f"c{number}", {NAMES.gpu_mem: str(count)}) for number, count in enumerate(units)
    )
    return Pod(
        PodUid("u"),
        "team",
        "p",
        NodeName("n1"),
        annotations=spelled,
        labels=labels or {},
        containers=containers,
    )


def limits(made: Pod, units: int, *, total: int = 15) -> tuple[int, int]:
    """Soft and hard limit in GiB."""
    found = memory_limit(made, make_gpu(0, total), units, GIB, NAMES)
    return found.soft >> 30, found.hard >> 30


def test_the_request_is_guaranteed_and_the_limit_is_the_most() -> None:
    """Without an annotation both are the share."""
    assert limits(pod(8), 8) == (8, 8)
    assert limits(pod(8, limit="12"), 8) == (8, 12)
    assert limits(pod(5, 3, limit="12"), 8) == (8, 12)


def test_no_limit_is_more_than_the_gpu() -> None:
    """Nor less than the share, whatever the annotation is."""
    assert limits(pod(8, limit="99"), 8) == (8, 15)
    assert limits(pod(8, c0="1"), 8) == (8, 8)


def test_a_share_of_several_gpus_has_its_part_of_the_limit_on_each() -> None:
    """As the request has."""
    spread = pod(8, limit="12", labels={NAMES.gpu_count: "2"})
    assert limits(spread, 4) == (4, 6)


def test_units_that_may_be_used_are_the_limit_by_the_number_of_gpus() -> None:
    """At least the share of the GPU, at most all of it; 0 is no limit of its own."""
    assert burst_units(12, share=4, gpus=2, total=15) == 6
    assert burst_units(12, share=4, gpus=1, total=15) == 12
    assert burst_units(12, share=4, gpus=0, total=15) == 12
    assert burst_units(40, share=4, gpus=2, total=15) == 15
    assert burst_units(0, share=4, gpus=1, total=15) == 4


def test_a_pod_whose_request_cannot_be_read_is_limited_to_what_it_holds() -> None:
    """Kubelet has allocated its share: other pods of the GPU keep theirs."""
    made = pod(8, limit="12")
    broken = replace(made, containers=(Container("c0", {NAMES.gpu_mem: "many"}),))
    assert limits(broken, 8) == (8, 8)
    assert limits(replace(made, containers=()), 8) == (8, 8)


def test_kais_annotations_count_by_container_in_mib() -> None:
    """A container without one has its share; ours is the stronger word; invalid text is ignored."""
    assert limits(pod(4, 3, c0="6144"), 7) == (7, 9)
    assert limits(pod(4, 3, c0="6144", limit="8"), 7) == (7, 8)
    assert limits(pod(4, c0="6Gi"), 4) == (4, 4)
    assert limits(pod(4, other="6144"), 4) == (4, 4)


@pytest.mark.parametrize(
    ("mib", "unit", "burst"), [("6144", "GiB", 6), ("6500", "GiB", 6), ("6144", "MiB", 6144)]
)
def test_kais_limit_is_part_of_the_allocation(mib: str, unit: str, burst: int) -> None:
    """Whole units, so that inspect shows it; without a known unit there is none."""
    made = pod(4, c0=mib)
    known = replace(made, annotations={**made.annotations, "gpushare/unit": unit})
    held, unknown = allocation_of(known, NAMES), allocation_of(made, NAMES)
    assert held is not None
    assert unknown is not None
    assert (held.burst, unknown.burst) == (burst, 0)


@pytest.mark.parametrize(
    ("annotations", "bursts"),
    [({}, False), ({"c0": "6144"}, True), ({"limit": "12"}, True), ({"other": "6144"}, False)],
)
def test_the_toolkit_must_not_hold_a_bursting_pod_to_its_share(
    annotations: dict[str, str], bursts: bool
) -> None:
    """By either annotation; such a pod gets no variables of the toolkit."""
    found = expected_of(pod(8, **annotations), NAMES)
    assert found is not None
    assert found.bursts is bursts


@pytest.mark.parametrize("text", ["7", "0", "-1", "much", "", "1e3"])
def test_a_limit_below_the_request_or_no_number_is_a_fault(text: str) -> None:
    """No node takes such a pod, and the sentence states why."""
    requested = pod_request_of(pod(8, limit=text), NAMES)
    assert requested is not None
    assert requested.fault == f"its annotation {LIMIT} is {text!r}: use a number of units from 8 on"
    assert (requested.burst, requested.isolation) == (0, IsolationMode.NONE)


def test_exclusive_gpus_have_no_limit() -> None:
    """All of the GPU is theirs."""
    whole = Pod(
        PodUid("u"),
        "team",
        "p",
        annotations={LIMIT: "3"},
        containers=(Container("c", {NAMES.gpu: "1"}),),
    )
    requested = pod_request_of(whole, NAMES)
    assert requested is not None
    assert requested.fault == f"its annotation {LIMIT} is '3': it requests no memory"


@pytest.mark.parametrize(
    ("isolation", "demanded"),
    [
        ("none", IsolationMode.DRIVER),
        ("driver", IsolationMode.DRIVER),
        ("mps", IsolationMode.DRIVER_MPS),
        ("driver+mps", IsolationMode.DRIVER_MPS),
    ],
)
def test_a_pod_that_may_use_more_demands_limits_by_the_driver(
    isolation: str, demanded: IsolationMode
) -> None:
    """Elsewhere it could take what others are promised; the request alone is accounted for."""
    made = pod(8, limit="12")
    annotations = {**made.annotations, "gpushare/isolation": isolation}
    made = Pod(
        PodUid("u"), "t", "p", NodeName("n"), annotations=annotations, containers=made.containers
    )
    requested, held = pod_request_of(made, NAMES), allocation_of(made, NAMES)
    assert requested is not None
    assert held is not None
    assert (requested.mem, requested.burst, requested.isolation) == (8, 12, demanded)
    assert (held.pending, held.burst) == (8, 12)


def test_a_limit_that_equals_the_request_demands_nothing() -> None:
    """It is what every share has."""
    requested = pod_request_of(pod(8, limit="8"), NAMES)
    assert requested is not None
    assert (requested.burst, requested.isolation, requested.fault) == (0, IsolationMode.NONE, "")


@given(
    burst=st.integers(0, 1 << 20),
    share=st.integers(0, 200),
    gpus=st.integers(0, 16),
    total=st.integers(0, 200),
)
def test_what_may_be_used_is_between_share_and_gpu(
    burst: int, share: int, gpus: int, total: int
) -> None:
    """For any text that a tenant writes."""
    assert share <= burst_units(burst, share, gpus, total) <= max(share, total)


@pytest.mark.slow
@given(text=st.text(), units=st.integers(1, 15), size=st.sampled_from([1, 256, 1024]))
def test_no_text_takes_the_guarantee_or_exceeds_the_gpu(text: str, units: int, size: int) -> None:
    """Both annotations, any text, any unit."""
    made = pod(units, limit=text, c0=text)
    unit = MemoryUnit(size)
    found = memory_limit(made, make_gpu(0, 15), units, unit, NAMES)
    share, whole = units * size << 20, 15 * size << 20
    assert found == MemoryLimit(share, found.hard)
    assert share <= found.hard <= whole
