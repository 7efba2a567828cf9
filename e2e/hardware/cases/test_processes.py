"""Processes on a GPU: whose memory it is, and what a crash reaches."""

import os
import subprocess

import pytest

from gpuprobe.names import OUT_OF_MEMORY
from hardware import attribution, blast, presence
from hardware.barenode import BareNode
from hardware.blast import FINE
from hardware.clients import PROGRAM, Client
from hardware.compute import ComputeRequest, whole
from hardware.grants import PIPES, PublishedGpu, process_environment
from hardware.presence import NoGpuError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.fixture
def host_processes() -> None:
    """Process ids here are those that the driver reports."""
    try:
        presence.demand_host_processes()
    except NoGpuError as reason:
        pytest.skip(str(reason))


@pytest.mark.usefixtures("host_processes")
def test_memory_is_attributed_to_the_pod(slicing: BareNode, gpu: PublishedGpu) -> None:
    """The driver lists the process, and the plugin's metrics name the pod that it belongs to."""
    found = attribution.seen(slicing, gpu)
    assert (found["listed_mib"] or 0) >= found["held_mib"]
    assert (found["metric_mib"] or 0) >= found["held_mib"]


@pytest.mark.usefixtures("host_processes")
def test_over_use_is_reported_within_ten_seconds(slicing: BareNode, gpu: PublishedGpu) -> None:
    """Where nothing stops a process that takes more than its share, an event reports it."""
    assert attribution.overused(slicing, gpu) < 10


@pytest.mark.usefixtures("host_processes")
def test_memory_behind_mps_is_attributed_to_the_pod(mps: BareNode, gpu: PublishedGpu) -> None:
    """Clients of a daemon are listed themselves (Volta and later), so metrics name their pods."""
    found = attribution.seen(mps, gpu)
    assert (found["metric_mib"] or 0) >= found["held_mib"]


def test_clients_are_behind_the_daemon(mps: BareNode, gpu: PublishedGpu) -> None:
    """The daemon has a server for a client: one that cannot reach it would run without limits.

    CUDA goes on without MPS when the pipes are not reachable (nvidia-cuda-mps-control(1)), so
    that a client works proves nothing.
    """
    with mps.share(whole(mps), gpu=gpu.index) as held:
        environment = process_environment(held.envs)
        with Client.local(environment):
            result = subprocess.run(
                [presence.MPS_CONTROL],
                env=os.environ | environment,
                input="get_server_list\n",
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
    assert result.stdout.split()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the pipes read-only")
def test_clients_reach_the_daemon_over_a_read_only_mount(mps: BareNode, gpu: PublishedGpu) -> None:
    """With the pipes as `mps.readOnlyPipes` mounts them the limit of memory holds as well."""
    share = whole(mps)
    with mps.share(share, gpu=gpu.index) as held:
        environment = process_environment(held.envs)
        pipes = environment[PIPES]
        read_only = f"mount --bind {pipes} {pipes} && mount -o remount,bind,ro {pipes}"
        words = ["unshare", "--mount", "sh", "-c", f'{read_only} && exec "$@"', "sh", *PROGRAM]
        with Client(words, os.environ | environment) as client:
            allocated = share.units * mps.unit_mib
            found = client.ask("exhaust", step_mib=256, most_mib=2 * allocated)
    assert found["refusal"] == OUT_OF_MEMORY
    assert found["held_mib"] <= allocated


@pytest.mark.parametrize("crash", [blast.fault, blast.killed])
def test_without_mps_a_crash_is_that_of_one_process(
    slicing: BareNode, gpu: PublishedGpu, size: ComputeRequest, crash: blast.Crash
) -> None:
    """Neither the neighbour nor who comes later notices, and the GPU stays healthy."""
    found = blast.radius(slicing, gpu, size, crash)
    assert found.pop("offender") != FINE
    assert found.pop("gpu_healthy")
    assert set(found.values()) == {FINE}


@pytest.mark.parametrize("crash", [blast.fault, blast.killed])
def test_with_mps_the_gpu_serves_again_after_a_crash(
    mps: BareNode, gpu: PublishedGpu, size: ComputeRequest, crash: blast.Crash
) -> None:
    """New clients are let in after the old ones have gone, and the GPU stays healthy."""
    found = blast.radius(mps, gpu, size, crash)
    assert found["offender"] != FINE
    assert found["after_all_left"] == FINE
    assert found["gpu_healthy"]
