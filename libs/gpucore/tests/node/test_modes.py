"""Whose word decides the mode of a GPU, and when a GPU may change it."""

import pytest
from nodepods import make_gpu

from gpucore.model import Gpu, Inventory, IsolationMode
from gpucore.node.isolation.modes import (
    ignores_limits,
    incapable,
    incapable_driver,
    published,
    requested_modes,
    settled,
)
from gpucore.units import NodeName
from gpucore.wire.node.inventories import encode_inventory
from gpucore.wire.node.spec import Node

NONE, MPS, DRIVER, BOTH = IsolationMode
GPUS = (make_gpu(0), make_gpu(1))


def requested(
    *,
    default: IsolationMode | None = NONE,
    unable: dict[str, str] | None = None,
    undriven: dict[str, str] | None = None,
    gpus: str = "",
    **labels: str,
) -> tuple[list[IsolationMode], tuple[str, ...]]:
    """Isolation modes of GPUs 0 and 1, and the faults."""
    names = {"isolation": "gpushare/isolation", "schedule": "ack.node.gpu.schedule"}
    found = requested_modes(
        GPUS,
        default=default,
        labels={names[key]: text for key, text in labels.items()},
        annotations={"gpushare/gpu-isolation": gpus} if gpus else {},
        unable={
            MPS: unable or {},
            DRIVER: undriven or {},
            BOTH: (undriven or {}) | (unable or {}),
        },
    )
    return [found.isolations[gpu.uuid] for gpu in GPUS], found.faults


def test_the_label_is_stronger_than_the_setting_and_a_gpu_stronger_than_the_label() -> None:
    """Setting, then label, then the word for one GPU, by index or uuid."""
    assert requested(default=MPS) == ([MPS, MPS], ())
    assert requested(default=MPS, isolation="none") == ([NONE, NONE], ())
    assert requested(isolation="mps", gpus="1=none") == ([MPS, NONE], ())
    assert requested(gpus=f"{GPUS[0].uuid}=mps, 1=none") == ([MPS, NONE], ())


def test_the_vendors_label_is_read_where_ours_is_silent() -> None:
    """``ack.node.gpu.schedule=mps`` requests MPS; other values of it are ignored."""
    assert requested(schedule="mps") == ([MPS, MPS], ())
    assert requested(schedule="share") == ([NONE, NONE], ())
    assert requested(schedule="mps", isolation="none") == ([NONE, NONE], ())


@pytest.mark.parametrize("gpus", ["7=mps", "0=cgpu", "0", "=mps", "GPU-x=none"])
def test_an_unknown_word_changes_nothing_and_is_reported(gpus: str) -> None:
    """A typing error turns no daemon on or off."""
    isolations, faults = requested(isolation="mps", gpus=gpus)
    assert isolations == [MPS, MPS]
    assert len(faults) == 1
    assert "gpushare/gpu-isolation" in faults[0]


def test_an_invalid_label_leaves_the_setting() -> None:
    """The same for the label."""
    isolations, faults = requested(default=MPS, isolation="yes")
    assert isolations == [MPS, MPS]
    assert faults == ("the label gpushare/isolation=yes is none of none, mps, driver, driver-mps",)


def test_a_gpu_that_cannot_enforce_anything_never_reports_that_it_does() -> None:
    """The isolation mode stays none, and a sentence reports why."""
    isolations, faults = requested(default=MPS, unable={GPUS[1].uuid: "it is old"})
    assert isolations == [MPS, NONE]
    assert faults == ("GPU 1 cannot use isolation mode mps: it is old",)


@pytest.mark.parametrize(
    ("gpu", "capability", "able"),
    [
        (make_gpu(0), (7, 0), True),
        (make_gpu(0), (9, 0), True),
        (make_gpu(0), (0, 0), True),
        (make_gpu(0), (6, 1), False),
        (make_gpu(0, mig=True), (8, 0), False),
    ],
)
def test_mps_has_limits_from_volta_on_and_never_slices_an_instance(
    gpu: Gpu, capability: tuple[int, int], able: bool
) -> None:
    """Before Volta a client can be limited neither in threads nor in memory."""
    assert (incapable(gpu, capability) == "") is able


@pytest.mark.parametrize(
    ("driver", "old"), [("470.82.01", True), ("495.29.05", False), ("535.1", False), ("", False)]
)
def test_drivers_before_495_ignore_memory_limits(driver: str, old: bool) -> None:
    """CUDA 11.5 brought the limit; of an unknown driver nothing is claimed."""
    assert ignores_limits(driver) is old


def test_the_driver_is_a_mode_as_mps_is() -> None:
    """By setting, label and single GPU; a GPU that cannot have it has none, and not MPS."""
    assert requested(isolation="driver", gpus="1=mps") == ([DRIVER, MPS], ())
    isolations, faults = requested(default=DRIVER, undriven={GPUS[0].uuid: "it is cut"})
    assert isolations == [NONE, DRIVER]
    assert faults == ("GPU 0 cannot use isolation mode driver: it is cut",)


def test_no_setting_takes_the_strongest_mode_that_each_gpu_can_have() -> None:
    """Both, then the driver, MPS, none; what a GPU cannot have is no fault then."""
    first, second = (gpu.uuid for gpu in GPUS)
    assert requested(default=None) == ([BOTH, BOTH], ())
    assert requested(default=None, undriven={first: "old"}) == ([MPS, BOTH], ())
    assert requested(default=None, unable={first: "old"}) == ([DRIVER, BOTH], ())
    nothing = {first: "old", second: "old"}
    assert requested(default=None, undriven=nothing, unable={first: "old"}) == ([NONE, MPS], ())
    assert requested(default=None, isolation="none") == ([NONE, NONE], ())


@pytest.mark.parametrize(
    ("gpu", "driver", "cgroup_v2", "answers", "why"),
    [
        (make_gpu(0), "615.36.01", True, True, ""),
        (make_gpu(0), "", True, True, ""),
        (make_gpu(0), "610.1", True, True, "driver 610.1 is older than 615"),
        (
            make_gpu(0),
            "615.36.01",
            False,
            True,
            "the plugin finds no cgroup v2 with kubelet's pods",
        ),
        (
            make_gpu(0),
            "620.1",
            True,
            False,
            "the driver does not answer for memory limits of this GPU",
        ),
        (
            make_gpu(0, mig=True),
            "615.36.01",
            True,
            True,
            "the driver does not limit memory by cgroup on MIG instances",
        ),
    ],
)
def test_the_driver_limits_memory_from_615_on(
    gpu: Gpu, driver: str, cgroup_v2: bool, answers: bool, why: str
) -> None:
    """With cgroup v2, outside MIG, and only where NVML answers."""
    assert incapable_driver(gpu, driver, cgroup_v2=cgroup_v2, answers=answers) == why


def test_a_gpu_in_use_may_take_the_limits_of_the_driver_and_keeps_them() -> None:
    """They hold for running programs; nobody loses them while the GPU is in use."""
    busy = {"a", "b", "c"}
    current = {"a": NONE, "b": DRIVER, "c": MPS}
    wanted = {"a": DRIVER, "b": NONE, "c": DRIVER}
    assert settled(current, wanted, busy) == {"a": DRIVER, "b": DRIVER, "c": MPS}


def test_a_gpu_in_use_keeps_its_mode() -> None:
    """Busy GPUs keep what they have; empty and new ones take what is wanted."""
    current = {"a": NONE, "b": MPS, "c": MPS}
    wanted = {"a": MPS, "b": NONE, "d": MPS}
    assert settled(current, wanted, {"a"}) == {"a": NONE, "b": NONE, "d": MPS}
    assert settled(current, wanted, {"a", "b", "d"}) == {"a": NONE, "b": MPS, "d": MPS}


def test_a_restarted_plugin_reads_the_modes_it_had_published() -> None:
    """From the node's inventory; text that is none reports nothing."""
    text = encode_inventory(Inventory(gpus=(make_gpu(0, isolation=MPS), make_gpu(1))))
    node = Node(name=NodeName("n"), annotations={"gpushare/inventory": text})
    assert published(node) == {GPUS[0].uuid: MPS, GPUS[1].uuid: NONE}
    assert published(Node(name=NodeName("n"), annotations={"gpushare/inventory": "{"})) == {}
    assert published(Node(name=NodeName("n"))) == {}


def test_both_modes_together_are_spelled_so_that_a_label_can_hold_them() -> None:
    """A label value has no plus sign; annotations may have either."""
    assert requested(isolation="driver-mps") == ([BOTH, BOTH], ())
    assert requested(gpus="0=driver+mps,1=driver-mps") == ([BOTH, BOTH], ())
    assert IsolationMode.parse("driver-") is None


def test_a_gpu_in_both_modes_gives_what_a_pod_demands_of_either() -> None:
    """And neither mode alone gives both."""
    given = {mode: [one for one in IsolationMode if mode.gives(one)] for mode in IsolationMode}
    assert given == {
        NONE: [NONE],
        MPS: [NONE, MPS],
        DRIVER: [NONE, DRIVER],
        BOTH: [NONE, MPS, DRIVER, BOTH],
    }


@pytest.mark.parametrize(
    ("current", "wanted", "now"),
    [
        (MPS, BOTH, BOTH),  # the limits are added
        (NONE, BOTH, NONE),  # programs without a daemon would go on without one
        (DRIVER, BOTH, DRIVER),
        (BOTH, DRIVER, BOTH),
        (BOTH, MPS, BOTH),
    ],
)
def test_a_gpu_in_use_takes_limits_and_neither_takes_nor_loses_a_daemon(
    current: IsolationMode, wanted: IsolationMode, now: IsolationMode
) -> None:
    """An empty one changes at once."""
    assert settled({"g": current}, {"g": wanted}, {"g"}) == {"g": now}
    assert settled({"g": current}, {"g": wanted}, ()) == {"g": wanted}
