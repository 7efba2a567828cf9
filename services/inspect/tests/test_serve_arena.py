"""What arena serves is demanded, placed, accounted for and shown like everything else."""

import json
from collections.abc import Mapping

import arenaobjects as arena
import msgspec
import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpucore.model import Allocation, PodRequest
from gpucore.units import GpuIndex
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import decode_pod
from gpucore.wire.whole_requests import pod_request_of

MEM, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
PLACED = {
    "ALIYUN_COM_GPU_MEM_IDX": "1",
    "ALIYUN_COM_GPU_MEM_POD": "3",
    "ALIYUN_COM_GPU_MEM_DEV": "15",
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1764000000000000000",
}
SHARES = [{MEM: 3}, {MEM: 3, CORE: 20}]


def demand(server: str, limits: Mapping[str, int]) -> PodRequest | None:
    """What the core reads from a pod of arena's."""
    raw = msgspec.json.encode(arena.pod(server, "m", limits))
    return pod_request_of(decode_pod(raw), DEFAULT_NAMES)


def claim(limits: Mapping[str, int], annotations: Mapping[str, str]) -> Allocation | None:
    """What the core counts for a placed pod of arena's."""
    raw = msgspec.json.encode(
        arena.pod("tensorflow", "m", limits, node="n", annotations=annotations)
    )
    return allocation_of(decode_pod(raw), DEFAULT_NAMES)


@pytest.mark.parametrize("server", arena.KINDS)
@pytest.mark.parametrize("limits", SHARES)
def test_limits_are_the_demand(server: str, limits: dict[str, int]) -> None:
    """``--gpumemory`` and ``--gpucore`` of every server are read from the limits it writes."""
    found = demand(server, limits)
    assert found is not None
    assert (found.mem, found.core, found.gpus, found.gpu_count) == (3, limits.get(CORE, 0), 0, 1)


@pytest.mark.parametrize("server", arena.KINDS)
def test_gpus_of_other_plugins_are_none_of_ours(server: str) -> None:
    """``--gpus`` requests GPUs of NVIDIA's own plugin; no share is counted for it."""
    assert demand(server, {"nvidia.com/gpu": 1}) is None


def test_annotations_are_the_place() -> None:
    """A pod that was placed by an original is counted on the GPU that it names."""
    found = claim({MEM: 3}, PLACED)
    assert found is not None
    assert (dict(found.placement.mem), found.pending) == ({GpuIndex(1): 3}, 0)


def test_a_pod_without_annotations_is_counted_on_its_node() -> None:
    """Nothing that arena has running is ever free, even where its GPU is not known."""
    found = claim({MEM: 3}, {})
    assert found is not None
    assert (dict(found.placement.mem), found.pending) == ({}, 3)


@pytest.fixture
def serving(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 15; a share of 3 on the second, served by arena."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)])
    placed = arena.pod("tensorflow", "mnist", {MEM: 3}, node="n", annotations=PLACED)
    return cluster.add(placed)


def test_top_node_shows_it(run: Run, serving: FakeCluster) -> None:
    """The summary has its part of a GPU, and the details its name and fraction."""
    assert run("top", "node", on=serving).out.splitlines()[1].split()[4:6] == ["2", "0.2"]
    details = run("top", "node", "-d", on=serving).out
    (row,) = [line.split() for line in details.splitlines() if "mnist" in line]
    assert (row[0], row[2]) == ("default", "0.20")
    assert run("top", "node", "-s", on=serving).out.splitlines()[1].split()[2:] == ["0/15", "3/15"]


def test_room_is_counted_beside_it(run: Run, serving: FakeCluster) -> None:
    """What its share leaves on the GPU is what another serving pod can still have."""
    document = json.loads(run("inspect", "-o", "json", on=serving).out)
    gpus = document["items"][0]["gpus"]
    assert [(gpu["allocated"], gpu["total"]) for gpu in gpus] == [(0, 15), (3, 15)]
