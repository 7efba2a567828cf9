"""What a container is given for its ids: the original's variables, and ours."""

import msgspec
import pytest
from nodepods import machine, make_gpu

from gpucore.model import Inventory, IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy, Visible, fraction, grant
from gpucore.node.isolation.mps_grant import HostMount, MpsPlace
from gpucore.units import GpuIndex, MemoryUnit

MEM, CORE, GPU = Resource.MEM, Resource.CORE, Resource.GPU
BY_INDEX = GrantPolicy(visible=Visible.INDEX)


def on(*pairs: tuple[int, int]) -> dict[GpuIndex, int]:
    return {GpuIndex(index): amount for index, amount in pairs}


def test_three_units_of_gpu_one_speak_the_first_generation() -> None:
    """B3: exactly the original's variables, with the units of the GPU that was given."""
    envs = grant(MEM, on((1, 3)), machine(11, 15), BY_INDEX).envs
    assert envs == {
        "NVIDIA_VISIBLE_DEVICES": "1",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
        "GPUSHARE_MEM_FRACTION": "0.2000",
        "GPUSHARE_MEM_LIMIT_MIB": "3072",
    }


def test_the_gpu_is_named_by_uuid_unless_indexes_are_requested() -> None:
    """A uuid survives a change of the GPUs' order; a MIG instance has nothing but its uuid."""
    inventory = Inventory(gpus=(make_gpu(0), make_gpu(1, mig=True)))
    uuids = [gpu.uuid for gpu in inventory.gpus]
    visible = "NVIDIA_VISIBLE_DEVICES"
    assert grant(MEM, on((0, 1)), inventory, GrantPolicy()).envs[visible] == uuids[0]
    assert grant(MEM, on((1, 1)), inventory, BY_INDEX).envs[visible] == uuids[1]


def test_the_label_that_switches_cgpu_off_is_passed_on() -> None:
    """B7: with cgpu.disable.isolation the container gets CGPU_DISABLE=true."""
    policy = msgspec.structs.replace(BY_INDEX, cgpu_disable=True)
    assert grant(MEM, on((0, 1)), machine(15), policy).envs["CGPU_DISABLE"] == "true"
    assert "CGPU_DISABLE" not in grant(MEM, on((0, 1)), machine(15), BY_INDEX).envs


def test_limits_follow_the_size_of_a_unit() -> None:
    """The limit in MiB is the amount times the unit, whatever the unit is."""
    inventory = msgspec.structs.replace(machine(60), unit=MemoryUnit(256))
    assert grant(MEM, on((0, 6)), inventory, BY_INDEX).envs["GPUSHARE_MEM_LIMIT_MIB"] == "1536"


def test_a_share_of_several_gpus_names_them_all_and_limits_each() -> None:
    """N units over M GPUs: every GPU is visible, the limit is that of one GPU."""
    envs = grant(MEM, on((0, 4), (2, 4)), machine(16, 16, 16), BY_INDEX).envs
    assert envs["NVIDIA_VISIBLE_DEVICES"] == "0,2"
    assert envs["ALIYUN_COM_GPU_MEM_IDX"] == "0,2"
    assert envs["ALIYUN_COM_GPU_MEM_POD"] == "8"
    assert envs["GPUSHARE_MEM_FRACTION"] == "0.2500"


def test_a_fraction_is_the_share_of_the_largest_gpu() -> None:
    """A program takes the same fraction of each GPU, and no more than its share of any."""
    envs = grant(MEM, on((0, 4), (1, 4)), machine(16, 64), BY_INDEX).envs
    assert envs["GPUSHARE_MEM_FRACTION"] == "0.0625"
    assert envs["ALIYUN_COM_GPU_MEM_DEV"] == "16"


def test_a_fraction_leaves_the_operators_reserve_out() -> None:
    """CUDA counts the reserve as available: all units of the GPU are less than all of that."""
    policy = msgspec.structs.replace(BY_INDEX, reserve_mib=4096)
    gpu = msgspec.structs.replace(make_gpu(0), units=12, memory_mib=16384, reserved_mib=4096)
    envs = grant(MEM, on((0, 12)), Inventory(gpus=(gpu,)), policy).envs
    assert envs["GPUSHARE_MEM_FRACTION"] == "0.7500"


def test_whole_gpus_are_the_group() -> None:
    """Exclusive GPUs speak the topology generation, in the order of their group."""
    envs = grant(GPU, on((3, 1), (1, 1)), machine(15, 15, 15, 15), BY_INDEX).envs
    assert envs == {"NVIDIA_VISIBLE_DEVICES": "3,1", "ALIYUN_COM_GPU_GROUP": "3,1"}


def test_the_compute_plugin_contradicts_the_memory_plugin_in_nothing() -> None:
    """Kubelet merges both answers of a container: they never disagree on a variable."""
    memory = grant(MEM, on((1, 3)), machine(15, 15), BY_INDEX, core_follows=True).envs
    compute = grant(CORE, on((1, 30)), machine(15, 15), BY_INDEX).envs
    assert all(memory.get(key, value) == value for key, value in compute.items())


def test_cdi_names_are_given_where_the_runtime_speaks_cdi() -> None:
    """CDI devices are named by kind and uuid, one for each GPU."""
    inventory = machine(15, 15)
    policy = GrantPolicy(cdi_kind="nvidia.com/gpu")
    granted = grant(GPU, on((0, 1), (1, 1)), inventory, policy)
    assert granted.cdi_devices == tuple(f"nvidia.com/gpu={gpu.uuid}" for gpu in inventory.gpus)
    assert grant(GPU, on((0, 1)), inventory, GrantPolicy()).cdi_devices == ()


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (3, 15, "0.2000"),
        (4, 11, "0.3636"),
        (15, 15, "1.0000"),
        (20, 15, "1.0000"),
        (1, 20000, "0.0001"),
    ],
)
def test_a_fraction_is_never_zero_and_never_too_much(part: int, whole: int, text: str) -> None:
    """Rounded down, but not to 0, which frameworks read as no limit; at most the whole GPU."""
    assert fraction(part, whole) == text


MPS = GrantPolicy(visible=Visible.INDEX, mps=MpsPlace("/run/mps"))
MPS_GPU = Inventory(gpus=(make_gpu(0, 15, isolation=IsolationMode.MPS),))


def test_a_share_behind_mps_is_limited_in_threads_and_memory() -> None:
    """B10: 3 of 15 units are 20 percent of the threads, with pipe directory and mounts."""
    granted = grant(MEM, on((0, 3)), MPS_GPU, MPS)
    pipe = f"/run/mps/{MPS_GPU.gpus[0].uuid}/pipe"
    assert granted.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "20"
    assert granted.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
    assert granted.envs["CUDA_MPS_PIPE_DIRECTORY"] == pipe
    shm = HostMount("/run/mps/shm", "/dev/shm")
    assert granted.mounts == (HostMount(pipe, pipe), shm)
    closed = GrantPolicy(mps=MpsPlace("/run/mps", read_only=True))
    mounts = grant(MEM, on((0, 3)), MPS_GPU, closed).mounts
    assert mounts == (HostMount(pipe, pipe, read_only=True), shm)


def test_a_share_larger_than_its_oversold_gpu_has_all_threads() -> None:
    """Twice the units of the GPU are no 200 percent, which CUDA does not take."""
    envs = grant(MEM, on((0, 30)), MPS_GPU, MPS).envs
    assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"


def test_threads_are_those_requested_where_compute_is_requested() -> None:
    """With gpu-core the percentage is what was requested; the memory answer leaves it alone."""
    threads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert grant(CORE, on((0, 35)), MPS_GPU, MPS).envs[threads] == "35"
    assert threads not in grant(MEM, on((0, 3)), MPS_GPU, MPS, core_follows=True).envs


def test_ids_of_compute_are_no_memory() -> None:
    """35 percent of compute must not become a limit of 35 units."""
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in grant(CORE, on((0, 35)), MPS_GPU, MPS).envs


def test_the_smaller_part_of_compute_holds_for_all_gpus() -> None:
    """There is one number for a container, and 1 is its least value."""
    gpus = Inventory(gpus=(MPS_GPU.gpus[0], make_gpu(1, 15, isolation=IsolationMode.MPS)))
    threads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert grant(CORE, on((0, 60), (1, 30)), gpus, MPS).envs[threads] == "30"
    assert grant(CORE, on((0, 1), (1, 30)), gpus, MPS).envs[threads] == "1"


def test_memory_is_limited_by_mps_unless_the_driver_limits_it_on_every_gpu() -> None:
    """A pod with a GPU that the driver does not limit would otherwise have no limit there."""
    both, mps = IsolationMode.DRIVER_MPS, IsolationMode.MPS
    limit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    for modes, limited in [((both, both), False), ((both, mps), True), ((mps, mps), True)]:
        gpus = tuple(make_gpu(index, isolation=mode) for index, mode in enumerate(modes))
        envs = grant(MEM, on((0, 3), (1, 3)), Inventory(gpus=gpus), MPS).envs
        assert (limit in envs) is limited


def test_one_gpu_without_mps_leaves_all_gpus_of_a_container_without() -> None:
    """A client of the daemon of one GPU does not see the other."""
    gpus = Inventory(gpus=(MPS_GPU.gpus[0], make_gpu(1)))
    granted = grant(MEM, on((0, 3), (1, 3)), gpus, MPS)
    assert not [key for key in granted.envs if key.startswith("CUDA_MPS")]
    assert granted.mounts == ()


def test_a_tiny_share_still_has_a_thread_percent() -> None:
    """1 of 200 units is at least 1 percent: 0 is not a valid limit."""
    inventory = Inventory(gpus=(make_gpu(0, 200, isolation=IsolationMode.MPS),))
    envs = grant(MEM, on((0, 1)), inventory, MPS).envs
    assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "1"


def test_a_gpu_without_mps_has_no_mps_variables() -> None:
    """The isolation mode of the GPU decides, not the policy alone."""
    envs = grant(MEM, on((0, 3)), machine(15), MPS).envs
    assert not [key for key in envs if key.startswith("CUDA_MPS")]


def test_whole_gpus_have_no_mps_variables() -> None:
    """A pod that has its GPU to itself needs no daemon, whatever the GPU's mode is."""
    granted = grant(GPU, on((0, 1)), MPS_GPU, MPS)
    assert not [key for key in granted.envs if key.startswith("CUDA_MPS")]
    assert granted.mounts == ()


def test_one_daemon_for_all_gpus_limits_each_by_its_ordinal() -> None:
    """With --mps-pipe the container sees several GPUs, so every ordinal has its limit."""
    policy = GrantPolicy(mps=MpsPlace("/run/mps", pipe="/root/nvidia-mps"))
    inventory = Inventory(
        gpus=(
            make_gpu(2, 16, isolation=IsolationMode.MPS),
            make_gpu(5, 32, isolation=IsolationMode.MPS),
        )
    )
    granted = grant(MEM, on((2, 4), (5, 4)), inventory, policy)
    assert granted.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M,1=4096M"
    assert granted.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "12"
    assert granted.mounts == (HostMount("/root/nvidia-mps", "/root/nvidia-mps"),)


def test_the_container_toolkit_gets_the_share_where_the_driver_limits() -> None:
    """Whole MiB of one GPU; compute and exclusive GPUs have no limit."""
    driver = Inventory(gpus=(make_gpu(0, isolation=IsolationMode.DRIVER), make_gpu(1)))
    variables = ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT")
    envs = grant(MEM, on((0, 3)), driver, BY_INDEX).envs
    assert [envs.get(name) for name in variables] == ["3072", "3072"]
    others = (grant(MEM, on((1, 3)), driver, BY_INDEX), grant(MEM, on((0, 3), (1, 3)), driver, MPS))
    no_memory = (grant(CORE, on((0, 3)), driver, MPS), grant(GPU, on((0, 1)), driver, MPS))
    assert not any(name in each.envs for each in (*others, *no_memory) for name in variables)


def test_with_both_modes_the_driver_limits_memory_and_mps_compute() -> None:
    """No limit of MPS stands below the one of the driver."""
    both = Inventory(gpus=(make_gpu(0, 15, isolation=IsolationMode.DRIVER_MPS),))
    envs = grant(MEM, on((0, 3)), both, MPS).envs
    assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "20"
    assert envs["NVIDIA_GPU_MEMORY_LIMIT"] == "3072"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in envs


def test_the_toolkit_does_not_hold_a_pod_to_its_share_that_may_use_more() -> None:
    """The limit of the pod's cgroup does; its CDI device is another one."""
    driver = Inventory(gpus=(make_gpu(0, isolation=IsolationMode.DRIVER),))
    policy = msgspec.structs.replace(BY_INDEX, cdi=True)
    plain, burst = (grant(MEM, on((0, 3)), driver, policy, bursts=each) for each in (False, True))
    assert not {"NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"} & burst.envs.keys()
    assert plain.cdi_devices != burst.cdi_devices
    open_gpu = Inventory(gpus=(make_gpu(0),))
    plain, burst = (grant(MEM, on((0, 3)), open_gpu, policy, bursts=each) for each in (False, True))
    assert plain == burst
