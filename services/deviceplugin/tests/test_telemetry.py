"""Metrics that are more than a number that is set."""

import pytest
from prometheus_client import REGISTRY

from gpucore.node.allocation.device_ids import Resource
from gpudeviceplugin import telemetry
from gpudeviceplugin.kubelet.start_gate import WAIT_SECONDS


def call(name: str) -> float:
    """Of the histogram of calls to a test's own name."""
    labels = {"call": "Test", "resource": str(Resource.MEM)}
    return REGISTRY.get_sample_value(f"gpushare_plugin_call_seconds_{name}", labels) or 0.0


def test_a_call_is_measured_from_its_begin_to_its_end_also_when_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refusal ends with an error."""
    now = [100.0]
    monkeypatch.setattr("gpudeviceplugin.telemetry.time.perf_counter", lambda: now[0])
    with telemetry.timed("Test", Resource.MEM):
        now[0] += 2
    assert (call("count"), call("sum")) == (1, 2)
    refused = telemetry.timed("Test", Resource.MEM)
    refused.__enter__()
    now[0] += 3
    assert not refused.__exit__(RuntimeError, RuntimeError(), None)
    assert (call("count"), call("sum")) == (2, 5)


def test_a_call_that_waits_for_a_limit_is_told_from_one_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last bucket is the longest time that a quantile can state; such a call takes 20 s."""
    now = [100.0]
    monkeypatch.setattr("gpudeviceplugin.telemetry.time.perf_counter", lambda: now[0])
    with telemetry.timed("Slow", Resource.MEM):
        now[0] += WAIT_SECONDS
    labels = {"call": "Slow", "resource": str(Resource.MEM)}
    name = "gpushare_plugin_call_seconds_bucket"
    counts = [REGISTRY.get_sample_value(name, labels | {"le": le}) for le in ("5.0", "30.0")]
    assert counts == [0, 1]


def test_a_daemon_that_was_never_counted_can_be_forgotten() -> None:
    """And one that was has no series afterwards."""
    telemetry.forget_daemon("GPU-never")
    telemetry.MPS_SERVING.labels("GPU-gone").set(1)
    telemetry.forget_daemon("GPU-gone")
    assert REGISTRY.get_sample_value("gpushare_mps_serving", {"uuid": "GPU-gone"}) is None
