"""The reports of a pod that works beside others, on a clock of the test."""

from contextlib import ExitStack
from itertools import islice
from typing import Any

import pytest

from gpuprobe.driver import CudaError
from gpuprobe.running import PlanSteps


class TimedGpu:
    """A GPU whose batches of kernels take these seconds by turns, the last one from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self._seconds, self.now = list(seconds), 1000.0
        monkeypatch.setattr("gpuprobe.worker.time.monotonic", lambda: self.now)
        monkeypatch.setattr("gpuprobe.running.load", lambda: None)
        monkeypatch.setattr("gpuprobe.running.CudaDevice", lambda _: self)

    def finish(self) -> None:
        """Wait for what was launched."""
        found = self._seconds
        self.now += found.pop(0) if len(found) > 1 else found[0]

    def alloc_memory(self, _: int) -> int:
        """An address."""
        return 1

    def kernel(self, *_: str) -> str:
        """A kernel."""
        return "kernel"

    def launch(self, *_: Any) -> None:
        """Nothing: :meth:`finish` takes the time."""


def stints(number: int) -> list[dict[str, Any]]:
    """The first reports of a pod."""
    with ExitStack() as stack:
        steps = PlanSteps(stack)
        return [steps.do_stint(blocks=1, rounds=1) for _ in range(number)]


def test_a_slow_request_counts_wherever_it_is_in_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour that starves a pod for one request would be unseen, if that was left out."""
    TimedGpu(monkeypatch, 0.2, 0.2, 0.2, 4.0, 0.2)
    first, second, third = stints(3)
    assert first["requests"] / first["seconds"] == pytest.approx(5)
    assert second["requests"] / second["seconds"] == pytest.approx(1 / 4)
    assert third["requests"] / third["seconds"] == pytest.approx(5)


def test_all_time_of_a_pod_is_in_its_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their seconds add up to what has passed."""
    gpu = TimedGpu(monkeypatch, 0.3, 0.1, 0.7, 0.1, 2.0, 0.4)
    begin = gpu.now
    assert sum(each["seconds"] for each in stints(5)) == pytest.approx(gpu.now - begin)


def test_a_pod_whose_work_failed_reports_that_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each next call fails at once: the lines would fill the log, and kubelet would rotate it."""
    gpu = TimedGpu(monkeypatch, 0.1)

    def fail(*_: Any) -> None:
        raise CudaError("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")

    watch = {"do": "watch", "seconds": 90, "blocks": 1, "milliseconds": 1.0, "mib": 0, "rounds": 1}
    monkeypatch.setattr(gpu, "fill", lambda *_: None, raising=False)
    monkeypatch.setattr(gpu, "launch", fail)
    with ExitStack() as stack:
        found = list(islice(PlanSteps(stack).replies(watch), 9))
    assert [each["do"] for each in found] == ["watch", "stint"]
    assert found[-1]["error"]["name"] == "CUDA_ERROR_ILLEGAL_ADDRESS"
