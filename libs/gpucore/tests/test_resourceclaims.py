"""What kube-scheduler allocated to a ResourceClaim, as the ledger counts it."""

from typing import Any

import msgspec
import pytest
from corebuilders import make_gpus
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation
from gpucore.units import MIB, GpuIndex, NodeName, PodUid
from gpucore.wire.claim.resource_claims import allocation_of_claim, decode_claim
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER

N1 = NodeName("n1")
INDEXES = {f"gpu-{index}": GpuIndex(index) for index in range(4)}


def result(device: str, memory: str = "", core: str = "0", **fields: Any) -> dict[str, Any]:
    """One result of an allocation; a share unless no memory is given."""
    found = {"request": "gpu", "driver": CLAIM_DRIVER, "pool": "n1", "device": device}
    if memory:
        consumed = {"memory": memory, "compute": core}
        found |= {"shareID": "0d4e-1", "consumedCapacity": consumed}
    return found | fields


def claim(*results: dict[str, Any]) -> bytes:
    """An allocated claim of pod ``p``, which another consumer uses too."""
    return msgspec.json.encode(
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "u-c", "resourceVersion": "3"},
            "status": {
                "allocation": {"devices": {"results": list(results)}},
                "reservedFor": [
                    {"apiGroup": "a.example", "resource": "jobs", "name": "j", "uid": "u-j"},
                    {"resource": "pods", "name": "p", "uid": "u-p"},
                ],
            },
        }
    )


def allocation(*results: dict[str, Any]) -> Allocation | None:
    """What such a claim holds on node ``n1``."""
    return allocation_of_claim(decode_claim(claim(*results)), N1, INDEXES)


def test_a_share_of_one_gpu() -> None:
    """Memory in MiB, compute in percent, and the one pod that may use the claim."""
    decoded = decode_claim(claim(result("gpu-3", "7Gi", "10")))
    assert decoded.pods == (("u-p", "p"),)
    assert decoded.shares[0].share_id == "0d4e-1"
    found = allocation_of_claim(decoded, N1, INDEXES)
    assert found is not None
    assert (found.uid, found.namespace, found.name, found.unit) == ("u-c", "ns", "c", MIB)
    assert (found.placement.mem, found.placement.core) == ({3: 7168}, {3: 10})


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1 << 40), st.integers(0, 100))),
)
def test_shares_of_one_claim_add_up(shares: list[tuple[int, int, int]]) -> None:
    """No amount is lost, and a part of a MiB counts as a whole one."""
    found = allocation(*(result(f"gpu-{gpu}", str(size), str(core)) for gpu, size, core in shares))
    assert (found is None) == (not shares)
    if found is not None:
        assert sum(found.placement.mem.values()) == sum(-(-s // (1 << 20)) for _, s, _ in shares)
        assert sum(found.placement.core.values()) == sum(core for _, _, core in shares)


def test_a_device_without_a_share_is_an_exclusive_gpu() -> None:
    """As is a MIG instance, which is allocated once."""
    found = allocation(result("gpu-1"), result("gpu-0"))
    assert found is not None
    assert (found.placement.group, found.placement.mem) == ((1, 0), {})


def test_a_name_of_a_capacity_may_have_the_domain_of_the_driver() -> None:
    """Both spellings are the same capacity."""
    consumed = {f"{CLAIM_DRIVER}/memory": "2Gi", f"{CLAIM_DRIVER}/compute": "5"}
    found = allocation(result("gpu-0", "1Gi", consumedCapacity=consumed))
    assert found is not None
    assert (found.placement.mem, found.placement.core) == ({0: 2048}, {0: 5})


def test_a_share_without_an_amount_of_memory_holds_the_whole_gpu() -> None:
    """What cannot be read never counts as less than it may be."""
    found = allocation(result("gpu-0", "1Gi", consumedCapacity={"compute": "5"}))
    assert found is not None
    assert found.placement.group == (0,)


def test_a_device_of_no_gpu_counts_as_pending() -> None:
    """What is held is never lost from the sum."""
    found = allocation(result("other", "2Gi", "5"), result("more"))
    assert found is not None
    assert (found.pending, found.pending_core, found.pending_gpus) == (2048, 5, 1)


def test_other_drivers_nodes_and_admin_access_hold_nothing() -> None:
    """Access for administration consumes no capacity."""
    assert allocation(result("gpu-0", "1Gi", driver="gpu.nvidia.com")) is None
    assert allocation(result("gpu-0", "1Gi", pool="n2")) is None
    assert allocation(result("gpu-0", adminAccess=True)) is None


def test_a_claim_without_an_allocation_holds_nothing() -> None:
    """It waits for the scheduler."""
    decoded = decode_claim(b'{"metadata":{"name":"c","uid":"u"},"spec":{}}')
    assert allocation_of_claim(decoded, N1, INDEXES) is None


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_claims_are_counted_in_the_unit_of_the_node_and_excess_shows(sizes: list[int]) -> None:
    """Kubernetes allocates no more than there is; more than that is reported all the same."""
    node = NodeInfo(N1, NodeCapacity(inventory=make_gpus(24), offers_shares=True))
    for number, gib in enumerate(sizes):
        found = allocation(result("gpu-0", f"{gib}Gi"))
        assert found is not None
        node.put(msgspec.structs.replace(found, uid=PodUid(f"claim-{number}")))
    assert node.used_units == sum(sizes)
    assert node.overfull == ((0,) if sum(sizes) > 24 else ())


@pytest.mark.parametrize("raw", [b"", b"[]", claim(result("gpu-0", "much"))])
def test_other_bytes_are_no_claim(raw: bytes) -> None:
    """One error for all, an amount that is no quantity included."""
    with pytest.raises(WireError):
        decode_claim(raw)
