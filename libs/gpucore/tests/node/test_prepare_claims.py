"""What the containers of a ResourceClaim are given, and the checkpoint of that."""

import json
from collections.abc import Mapping

import msgspec
import pytest
from nodepods import make_gpu

from gpucore.model import Gpu, Inventory, IsolationMode
from gpucore.node.claims.prepare import CLAIM_KIND, ClaimError, claim_node, prepare_claim
from gpucore.node.claims.prepared import (
    CheckpointError,
    PreparedClaim,
    decode_checkpoint,
    encode_checkpoint,
)
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import GIB
from gpucore.wire.claim.devices import device_name
from gpucore.wire.claim.prepared import AllocatedClaim
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.names import CLAIM_DRIVER

GIBIBYTE = 1 << 30
DAEMONS = GrantPolicy(mps=MpsPlace("/run/mps"))
ONE_DAEMON = GrantPolicy(mps=MpsPlace("", pipe="/run/pipe"))


def gpu(index: int, mode: IsolationMode = IsolationMode.NONE) -> Gpu:
    """16 GiB, all of them allocatable."""
    return msgspec.structs.replace(make_gpu(index), units=16, memory_mib=16 * 1024, isolation=mode)


def name_of(index: int) -> str:
    """The name of the device of a GPU of this node."""
    return device_name(gpu(index))


def device(index: int = 0, memory: int | None = 4 * GIBIBYTE, **more: object) -> DeviceShare:
    """A share of a GPU of this node."""
    base = DeviceShare("gpu", CLAIM_DRIVER, "n1", name_of(index), "share-1", memory=memory)
    return msgspec.structs.replace(base, **more)


def prepared(
    *devices: DeviceShare,
    mode: IsolationMode = IsolationMode.NONE,
    policy: GrantPolicy | None = None,
    configured: bool = False,
) -> PreparedClaim:
    """A claim on a node with three GPUs."""
    inventory = Inventory(gpus=tuple(gpu(index, mode) for index in range(3)), unit=GIB)
    claim = AllocatedClaim("u-1", devices, configured)
    return prepare_claim(claim, "team", "c", claim_node(inventory, policy or GrantPolicy(), "n1"))


def envs(claim: PreparedClaim) -> dict[str, Mapping[str, str]]:
    """Environment by CDI device."""
    return {
        each["name"]: dict(item.split("=", 1) for item in each["containerEdits"]["env"])
        for each in json.loads(claim.spec)["devices"]
    }


def mounts(claim: PreparedClaim) -> list[str]:
    """Host paths that the container of the only request mounts."""
    (each,) = json.loads(claim.spec)["devices"]
    return [mount["hostPath"] for mount in each["containerEdits"].get("mounts", [])]


def test_a_share_names_its_gpu_by_uuid_and_limits_its_memory() -> None:
    """The same variables as those that the device plugin gives for the same share."""
    claim = prepared(device())
    assert envs(claim) == {
        "u-1-gpu": {
            "NVIDIA_VISIBLE_DEVICES": gpu(0).uuid,
            "ALIYUN_COM_GPU_MEM_IDX": "0",
            "ALIYUN_COM_GPU_MEM_POD": "4",
            "ALIYUN_COM_GPU_MEM_CONTAINER": "4",
            "ALIYUN_COM_GPU_MEM_DEV": "16",
            "GPUSHARE_MEM_FRACTION": "0.2500",
            "GPUSHARE_MEM_LIMIT_MIB": "4096",
        }
    }
    assert json.loads(claim.spec)["kind"] == CLAIM_KIND
    assert [each.cdi_devices for each in claim.devices] == [("gpushare.io/claim=u-1-gpu",)]
    assert [each.uuid for each in claim.devices] == [gpu(0).uuid]


def test_a_request_may_have_a_mig_instance_beside_a_share() -> None:
    """The class of the request selects both, and a MIG instance is allocated as a whole."""
    mig = msgspec.structs.replace(gpu(1), mig=True)
    node = claim_node(Inventory(gpus=(gpu(0), mig), unit=GIB), GrantPolicy(), "n1")
    claim = AllocatedClaim("u-1", (device(), device(1, None, share_id="")))
    found = envs(prepare_claim(claim, "team", "c", node))["u-1-gpu"]
    assert found["NVIDIA_VISIBLE_DEVICES"] == f"{gpu(0).uuid},{mig.uuid}"
    assert found["ALIYUN_COM_GPU_MEM_CONTAINER"] == "20"


def test_an_amount_between_two_units_is_limited_in_mib() -> None:
    """The limit is never more than the claim consumes."""
    (env,) = envs(prepared(device(memory=4 * GIBIBYTE + 512 * 1024 * 1024 + 1))).values()
    assert env["GPUSHARE_MEM_LIMIT_MIB"] == "4608"
    assert env["ALIYUN_COM_GPU_MEM_DEV"] == str(16 * 1024)


def test_two_gpus_of_one_request_are_joined_in_one_cdi_device() -> None:
    """Of two devices that set one variable the last would win, and hide the first GPU."""
    claim = prepared(device(0), device(2))
    (env,) = envs(claim).values()
    assert env["NVIDIA_VISIBLE_DEVICES"] == f"{gpu(0).uuid},{gpu(2).uuid}"
    assert [each.cdi_devices for each in claim.devices] == [("gpushare.io/claim=u-1-gpu",), ()]


def test_two_shares_of_one_gpu_are_added() -> None:
    """The limit is that of both, although kube-scheduler takes another GPU for each."""
    (env,) = envs(prepared(device(), device(share_id="share-2"))).values()
    assert env["NVIDIA_VISIBLE_DEVICES"] == gpu(0).uuid
    assert env["GPUSHARE_MEM_LIMIT_MIB"] == "8192"


def test_each_request_has_a_cdi_device_of_its_own() -> None:
    """Containers that use different requests of a claim see different GPUs."""
    claim = prepared(device(0, request="a"), device(1, request="b"))
    seen = {name: env["NVIDIA_VISIBLE_DEVICES"] for name, env in envs(claim).items()}
    assert seen == {"u-1-a": gpu(0).uuid, "u-1-b": gpu(1).uuid}


def test_mps_limits_a_share_where_its_gpu_is_in_that_mode() -> None:
    """Pipe, memory and threads of the GPU's daemon; none of them in mode none."""
    claim = prepared(device(), mode=IsolationMode.MPS, policy=DAEMONS)
    (env,) = envs(claim).values()
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == f"/run/mps/{gpu(0).uuid}/pipe"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert mounts(claim) == [f"/run/mps/{gpu(0).uuid}/pipe", "/run/mps/shm"]
    assert not any(
        name.startswith("CUDA_MPS") for name in next(iter(envs(prepared(device())).values()))
    )


def test_consumed_compute_limits_the_threads() -> None:
    """A claim that consumes compute is not limited by its memory's part of the threads."""
    claim = prepared(device(core=10), mode=IsolationMode.MPS, policy=DAEMONS)
    (env,) = envs(claim).values()
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "10"
    assert env["GPUSHARE_MEM_LIMIT_MIB"] == "4096"


@pytest.mark.parametrize("memory", [None, 16 * GIBIBYTE])
def test_a_whole_gpu_has_no_limits_to_enforce(memory: int | None) -> None:
    """Nobody else is on it: it is an exclusive GPU, and speaks to no MPS daemon."""
    claim = prepared(device(1, memory), mode=IsolationMode.MPS, policy=DAEMONS)
    (env,) = envs(claim).values()
    assert env["ALIYUN_COM_GPU_GROUP"] == "1"
    assert env["NVIDIA_VISIBLE_DEVICES"] == gpu(1).uuid
    described = env.get("ALIYUN_COM_GPU_MEM_POD")
    assert described == (None if memory is None else "16")  # as its containers' scripts read it
    assert not any(name.startswith("CUDA_MPS") for name in env)
    assert mounts(claim) == []


def test_the_vendors_cdi_devices_come_before_ours() -> None:
    """They may hide all GPUs by NVIDIA_VISIBLE_DEVICES=void; the last device's value holds."""
    claim = prepared(device(), policy=GrantPolicy(cdi_kind="nvidia.com/gpu"))
    assert claim.devices[0].cdi_devices == (
        f"nvidia.com/gpu={gpu(0).uuid}",
        "gpushare.io/claim=u-1-gpu",
    )


def test_a_share_of_several_gpus_is_refused_where_each_has_its_daemon() -> None:
    """A program connects to one MPS daemon; with one daemon for all GPUs it sees them all."""
    two = (device(0), device(1))
    with pytest.raises(ClaimError, match="MPS daemons"):
        prepared(*two, mode=IsolationMode.MPS, policy=DAEMONS)
    (env,) = envs(prepared(*two, mode=IsolationMode.MPS, policy=ONE_DAEMON)).values()
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M,1=4096M"


def test_one_daemon_of_its_own_among_several_gpus_is_enough_to_refuse_them() -> None:
    """A program that connects to it does not see the other GPU; without daemons it sees both."""
    mixed = (gpu(0, IsolationMode.MPS), gpu(1))
    allocated = AllocatedClaim("u-1", (device(0), device(1)))
    node = claim_node(Inventory(gpus=mixed, unit=GIB), DAEMONS, "n1")
    with pytest.raises(ClaimError, match="MPS daemons"):
        prepare_claim(allocated, "team", "c", node)
    (env,) = envs(prepared(device(0), device(1), policy=DAEMONS)).values()
    assert env["NVIDIA_VISIBLE_DEVICES"] == f"{gpu(0).uuid},{gpu(1).uuid}"


def test_a_prepared_claim_repeats_the_claim_and_its_devices() -> None:
    """Kubelet compares pool, device and share with the allocation."""
    claim = prepared(device(1, request="a", share_id="s-7"))
    (answer,) = claim.devices
    assert (claim.namespace, claim.name, claim.uid) == ("team", "c", "u-1")
    assert (answer.request, answer.pool, answer.device, answer.share_id) == (
        "a",
        "n1",
        name_of(1),
        "s-7",
    )


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ((), "no device of this driver"),
        ((device(7),), "no device 'gpu-0{8}-.*7'"),
        ((device(pool="n2"),), "not the pool of this node"),
        ((device(memory=0),), "without memory"),
        ((device(memory=17 * GIBIBYTE),), "more memory than GPU 0 has"),
        ((device(memory=9 * GIBIBYTE),) * 2, "more memory than GPU 0 has"),
        ((device(), device(1, 0)), "without memory"),
    ],
)
def test_an_allocation_that_does_not_fit_the_node_is_refused(
    devices: tuple[DeviceShare, ...], sentence: str
) -> None:
    """The error names what does not fit."""
    with pytest.raises(ClaimError, match=sentence):
        prepared(*devices)


def test_opaque_parameters_are_refused() -> None:
    """A user who passes parameters expects an effect, and there is none."""
    with pytest.raises(ClaimError, match="takes none"):
        prepared(device(), configured=True)


def test_a_checkpoint_reads_back_as_it_was_written() -> None:
    """All of the answer and of the CDI file is in it."""
    claim = prepared(device(0), device(1, request="b"))
    assert decode_checkpoint(encode_checkpoint(claim), "u-1") == claim


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"null", b'{"version": 2}', b'{"version": 1, "claim": {}}']
)
def test_a_damaged_checkpoint_is_refused(raw: bytes) -> None:
    """An older plugin does not guess what a newer one wrote."""
    with pytest.raises(CheckpointError):
        decode_checkpoint(raw, "u-1")


def test_a_checkpoint_of_a_newer_version_is_refused_though_it_looks_alike() -> None:
    """A field can have another meaning there."""
    raw = encode_checkpoint(prepared(device()))
    assert raw.startswith(b'{"version":1,')
    with pytest.raises(CheckpointError, match="version 2"):
        decode_checkpoint(raw.replace(b'"version":1', b'"version":2'), "u-1")


def test_the_checkpoint_of_another_claim_is_refused() -> None:
    """A file that was copied under another name prepares nothing."""
    with pytest.raises(CheckpointError, match="another claim"):
        decode_checkpoint(encode_checkpoint(prepared(device())), "u-2")
