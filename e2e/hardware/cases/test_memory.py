"""Limits of memory: held with MPS, advice without it."""

import pytest

from gpuprobe.checks.memory import holds
from hardware import memory
from hardware.barenode import BareNode
from hardware.grants import LIMIT_MIB, MEMORY_LIMIT, PublishedGpu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


def test_unequal_shares_end_where_they_were_allocated(mps: BareNode, gpu: PublishedGpu) -> None:
    """Behind MPS each fills up to its limit, is out of memory there, and the other goes on."""
    found = memory.limits(mps, gpu)
    for share in (found["small"], found["large"]):
        assert holds(share)
        assert share["neighbour_intact"]


def test_the_limit_is_that_of_the_grant(mps: BareNode, gpu: PublishedGpu) -> None:
    """The variable that CUDA reads has the MiB of the share's own variables."""
    small, _ = memory.shares(gpu)
    with mps.share(small, gpu=gpu.index) as held:
        assert held.envs[MEMORY_LIMIT] == f"0={held.envs[LIMIT_MIB]}M"


def test_without_mps_nothing_stops_a_process(slicing: BareNode, gpu: PublishedGpu) -> None:
    """Without MPS a process takes more than its share: what such nodes promise is advice."""
    found = memory.limits(slicing, gpu)
    assert found["small"]["reached_mib"] > found["small"]["allocated_mib"]
    assert found["small"]["neighbour_intact"]
