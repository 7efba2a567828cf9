"""Shares of compute: threads are limited by MPS, and side by side beats turn by turn."""

import statistics

import pytest

from gpuprobe.checks.compute import limited
from hardware import compute
from hardware.barenode import BareNode
from hardware.compute import ComputeRequest, Effort
from hardware.grants import THREADS, PublishedGpu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

QUICK = Effort(seconds=1.0, runs=2)


def test_the_thread_percentage_changes_throughput(mps: BareNode, gpu: PublishedGpu) -> None:
    """At 50 and 10 percent of the threads a client alone gets clearly less arithmetic done.

    Less than in proportion may be lost: a GPU at its limit of power clocks down with all threads.
    """
    found = compute.threads(mps, gpu, (100, 50, 10), QUICK)
    rate = {percent: statistics.median(each["tflops"]) for percent, each in found.items()}
    assert not limited(rate)
    assert rate["10"] < 0.5 * rate["50"]


def test_the_percentage_is_that_of_the_grant(mps: BareNode, gpu: PublishedGpu) -> None:
    """CUDA is given the percent of compute that the container requested."""
    with mps.share(compute.whole(mps, 30), gpu=gpu.index) as held:
        assert held.envs[THREADS] == "30"


def test_small_kernels_run_side_by_side_with_mps(
    mps: BareNode, slicing: BareNode, gpu: PublishedGpu, size: ComputeRequest
) -> None:
    """Seven clients with small kernels get more done with MPS than by turns."""
    by_turns = compute.crowds(slicing, gpu, size, (7,), QUICK)["7"]
    together = compute.crowds(mps, gpu, size, (7,), QUICK)["7"]
    gain = statistics.median(together["requests_per_s"]) / statistics.median(
        by_turns["requests_per_s"]
    )
    assert gain > 1.2


def test_mps_costs_a_lone_client_little(
    mps: BareNode, slicing: BareNode, gpu: PublishedGpu, size: ComputeRequest
) -> None:
    """One client with all of the compute keeps most of its speed behind a daemon."""
    plain = compute.alone(slicing, gpu, size, QUICK)
    behind = compute.alone(mps, gpu, size, QUICK)
    for figure, values in plain.items():
        assert statistics.median(behind[figure]) > 0.8 * statistics.median(values), figure
