"""The node without Kubernetes over fakes: what the hardware suite takes for granted of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprobe.names import ENDED
from hardware import attribution, blast, compute, memory
from hardware.barenode import BareNode
from hardware.blast import FINE
from hardware.compute import Effort
from hardware.fakedevicemanager import DeviceRefusedError
from hardware.grants import CORE, MEM, ShareSize
from hardware.tests.fakenode import FIRST_UUID, SECOND_UUID, FakeMachine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the plugin's start is in the first

TINY = Effort(seconds=0.05, runs=1)
RATES = ("requests_per_s", "slowest_client_per_s")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, fake_cuda: Path) -> FakeMachine:
    """A machine with two T4."""
    return FakeMachine(tmp_path_factory.mktemp("machine"), fake_cuda)


@pytest.fixture(scope="module")
def node(machine: FakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareNode]:
    """The real plugin on it, with clients that find the fake driver."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in machine.env.items():
            patch.setenv(name, value)
        with machine.node(tmp_path_factory.mktemp("n")) as bare:
            yield bare


def test_gpus_are_published(node: BareNode) -> None:
    """What the plugin wrote to the node is read back as GPUs."""
    assert [gpu.uuid for gpu in node.gpus()] == [FIRST_UUID, SECOND_UUID]
    assert {gpu.units for gpu in node.gpus()} == {15}


def test_a_share_is_on_the_gpu_that_was_requested(node: BareNode) -> None:
    """The plugin follows the plan in the pod's annotations, for memory and compute alike."""
    with node.share(ShareSize(4, core=30), gpu=1) as held:
        assert held.envs["NVIDIA_VISIBLE_DEVICES"] == SECOND_UUID
        assert held.envs["GPUSHARE_MEM_LIMIT_MIB"] == "4096"
        assert held.envs["ALIYUN_COM_GPU_MEM_DEV"] == "15"


def test_a_share_of_another_gpu_is_refused(node: BareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin withdraws a GPU that needs a recovery; figures of another one are not its own."""
    offered = node.kubelet.healthy(MEM)
    second = {each for each in offered if SECOND_UUID in each}
    monkeypatch.setattr(node.kubelet, "healthy", lambda _: second)
    with (
        pytest.raises(DeviceRefusedError, match="a share of GPU 0 is granted on GPU 1"),
        node.share(ShareSize(4)),
    ):
        pytest.fail("it is on the other GPU")


def test_a_share_is_given_back(node: BareNode) -> None:
    """After its end a share's units are free again, and a GPU never holds more than it has."""
    full_gpu = ShareSize(15, core=100)
    for _ in range(2):
        with (
            node.share(full_gpu),
            node.share(full_gpu, gpu=1),
            pytest.raises(DeviceRefusedError, match=MEM),
            node.share(ShareSize(1)),
        ):
            pytest.fail("both GPUs are full")
    assert len(node.kubelet.healthy(CORE)) == 200


def test_memory_is_attributed_to_the_pod_of_a_client(node: BareNode) -> None:
    """A process that the driver reports is found in its client's pod, by list and by metric."""
    assert attribution.seen(node, node.gpus()[0]) == {
        "held_mib": 1024,
        "listed_mib": 1024,
        "others_listed": 0,
        "metric_mib": 1024,
    }


def test_over_use_is_reported(node: BareNode) -> None:
    """A client that takes more than its share is reported by an event."""
    assert attribution.overused(node, node.gpus()[0]) > 0  # and DeadlineError if never


def test_memory_limits_are_measured(node: BareNode) -> None:
    """Without MPS nobody is refused, and the reached memory is what the suite stops at."""
    found = memory.limits(node, node.gpus()[0])
    assert found["small"]["allocated_mib"] == 3 * 1024
    assert found["small"]["reached_mib"] > found["small"]["allocated_mib"]
    assert found["small"]["refusal"] == ""
    assert found["large"]["neighbour_intact"]


def test_work_is_measured(node: BareNode) -> None:
    """One client, and several with equal shares, get rates for a request of one size."""
    gpu = node.gpus()[0]
    size = compute.settle(node, gpu)
    assert size.blocks == 2
    alone = compute.alone(node, gpu, size, TINY)
    assert {key: len(runs) for key, runs in alone.items()} == {
        "tflops": 1,
        "gb_per_s": 1,
        "requests_per_s": 1,
    }
    crowds = compute.crowds(node, gpu, size, (1, 3), TINY)
    for count in (1, 3):  # the rate is that of all: no less than so many times the slowest
        (rate,), (slowest,) = (crowds[str(count)][key] for key in RATES)
        assert 0 < count * slowest <= rate * (1 + 1e-9)
    assert list(compute.threads(node, gpu, (50,), TINY)) == ["50"]


def test_crashes_are_measured(node: BareNode) -> None:
    """An illegal access and a kill are reported for the client that crashed alone."""
    gpu = node.gpus()[0]
    size = compute.settle(node, gpu)
    words = {blast.fault: "CUDA_ERROR_ILLEGAL_ADDRESS", blast.killed: ENDED}
    for crash, word in words.items():
        assert blast.radius(node, gpu, size, crash, work_seconds=0.2) == {
            "offender": word,
            "neighbour": FINE,
            "neighbour_afterwards": FINE,
            "newcomer": FINE,
            "after_all_left": FINE,
            "gpu_healthy": True,
        }
