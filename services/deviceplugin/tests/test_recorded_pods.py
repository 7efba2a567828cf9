"""Series of the usage recorder for Prometheus: peaks and starts, which a scrape does not see."""

from collections.abc import Mapping

import pytest
from prometheus_client import REGISTRY
from recorderworld import GI, World, ended, owned, pod

from gpucore.node.isolation.attribution import EngineUse
from gpucore.units import PodUid
from gpudeviceplugin import telemetry


@pytest.fixture
def world() -> World:
    """One pod of a StatefulSet with a share of GPU 0."""
    telemetry.forget_recorded()
    made = World()
    made.controllers.listed(owned("uid-a", "StatefulSet", "db"))
    made.state.on_replace((pod("a", owner="o"),))
    made.holds("a")
    return made


LABELS = {
    "exported_namespace": "team",
    "exported_pod": "a",
    "workload_kind": "StatefulSet",
    "workload": "db",
    "workload_container": "main",
}


def value(name: str, labels: Mapping[str, str] = LABELS, **more: str) -> float | None:
    """The value of a series; ``None`` where there is none."""
    return REGISTRY.get_sample_value(f"gpushare_recorded_{name}", {**labels, **more})


def test_the_peak_of_a_pod_stays_when_its_use_falls(world: World) -> None:
    """A scrape between two peaks would miss both."""
    for used in (GI // 2, GI, GI // 4):
        world.uses(a=used)
        world.sampled()
    assert value("used_bytes") == GI // 4
    assert value("bytes", kind="peak") == GI
    assert value("bytes", kind="requested") == 2 * GI
    assert value("bytes", kind="start_peak") is None
    assert value("count", kind="gpus") == 1


def test_a_reached_limit_has_its_time(world: World) -> None:
    """With the limit that was reached, so that readers know how much was not enough."""
    world.uses(a=2 * GI)
    world.sampled()
    reached = world.now
    world.uses(a=GI)
    world.sampled()
    assert value("timestamp_seconds", kind="reached") == reached
    assert value("bytes", kind="reached") == 2 * GI


def test_an_end_for_want_of_memory_is_counted(world: World) -> None:
    """From the next sample on."""
    world.uses(a=GI)
    world.sampled()
    world.recorder.seen(world.state.pods[PodUid("uid-a")], ended("2026-01-01T01:00:05Z"))
    world.sampled()
    assert value("count", kind="out_of_memory") == 1
    assert value("bytes", kind="ran_out") == 2 * GI


def test_a_start_that_was_seen_is_counted_with_its_peak(world: World) -> None:
    """Of a pod that is younger than the plugin."""
    world.sampled()
    world.controllers.listed(owned("uid-b", "StatefulSet", "db"))
    world.state.on_replace((pod("b", owner="o", creation="2026-01-01T01:00:20Z"),))
    world.holds("b")
    world.uses(b=GI)
    world.sampled()
    labels = {**LABELS, "exported_pod": "b"}
    assert value("count", labels, kind="starts") == 1
    assert value("bytes", labels, kind="start_peak") == GI
    assert value("used_bytes") is None, "the pod that is gone has no series"


def test_the_sm_utilization_of_the_last_sample_has_a_series(world: World) -> None:
    """None where the driver reports none: 0 percent would be another statement."""
    world.uses(a=GI, work=EngineUse({PodUid("uid-a"): 42}))
    world.sampled()
    assert value("sm_utilization_percent") == 42
    world.uses(a=GI, work=EngineUse({}, {PodUid("uid-a")}))
    world.sampled()
    assert value("sm_utilization_percent") == 0
    world.uses(a=GI)
    world.sampled()
    assert value("sm_utilization_percent") is None


def test_the_busiest_gpu_of_a_pod_counts_where_all_are_known(world: World) -> None:
    """Half of the work would pass for all of it."""
    world.holds("a", gpus=(0, 1))
    for gpu, percent in ((0, 10), (1, 90)):
        world.uses(gpu, a=GI, work=EngineUse({PodUid("uid-a"): percent}))
    world.sampled()
    assert value("sm_utilization_percent") == 90
    world.uses(1, a=GI)
    world.sampled()
    assert value("sm_utilization_percent") is None


def test_a_pod_without_figures_has_no_current_use(world: World) -> None:
    """An old figure would pass for a current one; the peak stays."""
    world.uses(a=GI)
    world.sampled()
    world.uses(unattributed=GI)
    world.sampled()
    assert value("used_bytes") is None
    assert value("bytes", kind="peak") == GI
