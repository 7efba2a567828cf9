"""Claims with several devices, on GPUs that keep memory back, and on GPUs that are not well."""

import json
from collections.abc import Mapping

import msgspec
import pytest
from nodepods import make_gpu

from gpucore.model import Gpu, Inventory, IsolationMode
from gpucore.node.claims.prepare import ClaimError, claim_node, prepare_claim
from gpucore.node.claims.prepared import PreparedClaim
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import GIB
from gpucore.wire.claim.devices import device_name
from gpucore.wire.claim.prepared import AllocatedClaim
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.names import CLAIM_DRIVER, LIMITING_ENV

MIB = 1 << 20
PLAIN = GrantPolicy()
MPS = GrantPolicy(mps=MpsPlace("", pipe="/run/pipe"))


def gpu(index: int, **more: object) -> Gpu:
    """16 GiB, all of them allocatable."""
    made = msgspec.structs.replace(make_gpu(index), units=16, memory_mib=16 * 1024)
    return msgspec.structs.replace(made, **more)


def share(mib: int | None, index: int = 0, **more: object) -> DeviceShare:
    """A share of a GPU of this node."""
    memory = None if mib is None else mib * MIB
    name = device_name(gpu(index))
    made = DeviceShare("gpu", CLAIM_DRIVER, "n1", name, f"s-{index}", memory=memory)
    return msgspec.structs.replace(made, **more)


def prepared(
    *devices: DeviceShare, gpus: tuple[Gpu, ...] = (), policy: GrantPolicy = PLAIN
) -> PreparedClaim:
    """A claim on a node with two GPUs."""
    inventory = Inventory(gpus=gpus or (gpu(0), gpu(1)), unit=GIB)
    allocated = AllocatedClaim("u-1", devices, configured=False)
    return prepare_claim(allocated, "team", "c", claim_node(inventory, policy, "n1"))


def env(claim: PreparedClaim) -> Mapping[str, str]:
    """Environment of the only request."""
    (device,) = json.loads(claim.spec)["devices"]
    return dict(item.split("=", 1) for item in device["containerEdits"]["env"])


def modes(mode: IsolationMode) -> tuple[Gpu, ...]:
    """Both GPUs in this mode."""
    return gpu(0, isolation=mode), gpu(1, isolation=mode)


def test_a_gpu_that_is_unhealthy_takes_no_claim() -> None:
    """The error names it by index and UUID; the other GPU goes on."""
    gpus = (gpu(0, healthy=False), gpu(1))
    with pytest.raises(ClaimError, match=rf"GPU 0 \({gpu(0).uuid}\) is unhealthy"):
        prepared(share(4096), gpus=gpus)
    assert prepared(share(4096, 1), gpus=gpus).devices[0].uuid == gpu(1).uuid


def test_a_claim_that_tolerates_an_unhealthy_gpu_is_prepared_on_it() -> None:
    """kube-scheduler allocates it such a GPU, and its pod would otherwise never start."""
    gpus = (gpu(0, healthy=False), gpu(1))
    claim = prepared(share(4096, tolerates_unhealthy=True), gpus=gpus)
    assert claim.devices[0].uuid == gpu(0).uuid
    with pytest.raises(ClaimError, match="GPU 0"):
        prepared(share(4096, 1, tolerates_unhealthy=True), share(4096), gpus=gpus)


def test_all_of_one_gpu_and_a_part_of_another_is_a_share_of_both() -> None:
    """Somebody else may be on the second, so the limits stay."""
    found = env(prepared(share(16 * 1024), share(4096, 1)))
    assert "GPUSHARE_MEM_LIMIT_MIB" in found
    assert "ALIYUN_COM_GPU_GROUP" not in found


def test_one_amount_between_two_units_makes_all_amounts_exact() -> None:
    """Rounded down to whole units, half a GiB that was paid for would be lost."""
    found = env(prepared(share(4096), share(4608, 1)))
    assert found["ALIYUN_COM_GPU_MEM_POD"] == str(4096 + 4608)


def test_compute_limits_the_threads_only_where_every_device_has_some() -> None:
    """One number holds for all GPUs of the container."""
    threads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    gpus = modes(IsolationMode.MPS)
    both = prepared(share(8192, core=30), share(8192, 1, core=30), gpus=gpus, policy=MPS)
    one = prepared(share(8192, core=30), share(8192, 1), gpus=gpus, policy=MPS)
    assert env(both)[threads] == "30"
    assert env(one)[threads] == "50"


def test_two_shares_of_one_gpu_have_at_most_all_of_its_compute() -> None:
    """Each was rounded up by itself."""
    devices = [share(4096, core=60, share_id=f"s-{number}") for number in range(2)]
    found = env(prepared(*devices, gpus=modes(IsolationMode.MPS), policy=MPS))
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"


def test_memory_that_the_driver_keeps_cannot_be_claimed() -> None:
    """Counted in MiB too."""
    gpus = (gpu(0, units=15, reserved_mib=512), gpu(1))
    assert env(prepared(share(15 * 1024 + 511), gpus=gpus))["ALIYUN_COM_GPU_MEM_DEV"] == "15872"
    with pytest.raises(ClaimError, match="more memory than GPU 0 has"):
        prepared(share(15 * 1024 + 513), gpus=gpus)


@pytest.mark.parametrize("mode", list(IsolationMode))
@pytest.mark.parametrize("memory", [None, 16 * 1024])
def test_all_of_a_gpu_is_limited_by_nothing(mode: IsolationMode, memory: int | None) -> None:
    """By no mode that the GPU may be in; its variables still describe what the container has."""
    claim = prepared(share(memory), gpus=modes(mode), policy=MPS)
    assert not LIMITING_ENV & env(claim).keys()
    assert not any(name.startswith("CUDA_MPS") for name in env(claim))
    (device,) = json.loads(claim.spec)["devices"]
    assert not device["containerEdits"].get("mounts")


def test_a_claim_has_one_cdi_file_of_ours() -> None:
    """That of the claim; the device plugin's shares have theirs."""
    claim = prepared(share(4096), policy=GrantPolicy(cdi=True))
    assert claim.devices[0].cdi_devices == ("gpushare.io/claim=u-1-gpu",)
