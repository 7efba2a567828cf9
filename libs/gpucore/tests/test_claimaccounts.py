"""ResourceSlices and ResourceClaims in the ledger."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.claims import ClaimAccounts
from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import AllocationState
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import ResourceSlice
from gpucore.wire.names import CLAIM_DRIVER, DEFAULT_NAMES
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Container, Pod

N1 = NodeName("n1")


def offer(*memory_gib: int, taint: int = -1, generation: int = 1) -> ResourceSlice:
    """The slice of node ``n1``."""
    devices = tuple(
        SliceDevice(
            f"gpu-{index}",
            index,
            uuid=f"GPU-{index}",
            memory_mib=gib * 1024,
            step_mib=1024,
            taint="NoSchedule" if index == taint else "",
        )
        for index, gib in enumerate(memory_gib)
    )
    return ResourceSlice("n1-s", CLAIM_DRIVER, "n1", "n1", devices, generation)


def claim(uid: str, device: str = "", memory: str = "", pod: str = "") -> Any:
    """A claim; allocated where a device is given."""
    share = {"consumedCapacity": {"memory": memory, "compute": "5"}} if memory else {}
    result = {"request": "gpu", "driver": CLAIM_DRIVER, "pool": "n1", "device": device, **share}
    status: dict[str, Any] = {"allocation": {"devices": {"results": [result]}}} if device else {}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"u-{pod}"}]
    found = {"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "status": status}
    return decode_claim(msgspec.json.encode(found))


@pytest.fixture
def ledger() -> Ledger:
    """A ledger with a node without GPUs of its own."""
    found = Ledger(DEFAULT_NAMES)
    found.node_changed(Node(N1))
    return found


@pytest.fixture
def accounts(ledger: Ledger) -> ClaimAccounts:
    """Its slices and claims."""
    return ClaimAccounts(ledger)


def node(ledger: Ledger) -> NodeInfo:
    """The node ``n1``."""
    found = ledger.node(N1)
    assert found is not None
    return found


def test_a_slice_gives_the_gpus_and_a_claim_holds_its_share(
    ledger: Ledger, accounts: ClaimAccounts
) -> None:
    """In the unit of the slice, which is the step of a share."""
    accounts.slice_changed(offer(15, 39, taint=1))
    accounts.claim_changed(claim("c", "gpu-0", "7Gi", pod="p"))
    info = node(ledger)
    assert (str(info.unit), info.total_units, info.used_units) == ("GiB", 54, 7)
    assert [gpu.healthy for gpu in info.devices.values()] == [True, False]
    assert info.allocations[PodUid("c")].state is AllocationState.CONFIRMED
    assert info.allocations[PodUid("c")].users == ((PodUid("u-p"), "p"),)
    assert info.max_allocatable_memory == -1, "the extender gives no share of such a node"


def test_a_claim_that_is_deallocated_or_deleted_holds_nothing(
    ledger: Ledger, accounts: ClaimAccounts
) -> None:
    """A claim can live longer than its allocation."""
    accounts.slice_changed(offer(15))
    accounts.claim_changed(claim("a", "gpu-0", "7Gi"))
    accounts.claim_changed(claim("b", "gpu-0", "2Gi"))
    accounts.claim_changed(claim("a"))
    assert node(ledger).used_units == 2
    accounts.claim_gone(PodUid("b"))
    assert node(ledger).used_units == 0
    assert not ledger.claims()


def test_a_claim_of_a_device_that_is_no_gpu_of_the_node_counts_on_the_node(
    ledger: Ledger, accounts: ClaimAccounts
) -> None:
    """The slice no longer has the device; the memory is in use until the claim is gone."""
    accounts.slice_changed(offer(15))
    accounts.claim_changed(claim("c", "gpu-7", "7Gi", pod="p"))
    assert (node(ledger).pending, node(ledger).used_units) == (7, 7)
    accounts.claim_gone(PodUid("c"))
    assert (node(ledger).pending, node(ledger).used_units) == (0, 0)


def test_a_list_of_pods_ends_no_claim(ledger: Ledger, accounts: ClaimAccounts) -> None:
    """Claims are in a list of their own."""
    accounts.slice_changed(offer(15))
    accounts.claim_changed(claim("c", "gpu-0", "7Gi"))
    ledger.relist_pods([])
    assert node(ledger).used_units == 7
    accounts.relist_claims([])
    assert node(ledger).used_units == 0


def test_more_than_a_gpu_has_is_over_full(ledger: Ledger, accounts: ClaimAccounts) -> None:
    """The API server prevents it; the ledger reports it all the same."""
    accounts.slice_changed(offer(15))
    for uid in ("a", "b"):
        accounts.claim_changed(claim(uid, "gpu-0", "8Gi"))
    assert node(ledger).overfull == (0,)


def test_exclusive_gpus_of_an_extended_resource_count_once(
    ledger: Ledger, accounts: ClaimAccounts
) -> None:
    """Kubernetes makes a claim for the pod's limit; the claim counts, whichever comes first."""
    limits = {DEFAULT_NAMES.gpu: "1"}
    pod = Pod(PodUid("u-p"), "ns", "p", node=N1, containers=(Container(limits=limits),))
    ledger.pod_changed(pod)
    accounts.slice_changed(offer(15))
    accounts.claim_changed(claim("c", "gpu-0", pod="p"))
    info = node(ledger)
    assert (info.pending_gpus, [device.taken for device in info.devices.values()]) == (0, [True])
    ledger.pod_gone(PodUid("u-p"))
    assert node(ledger).pending_gpus == 0


def test_other_drivers_and_older_generations_offer_nothing(
    ledger: Ledger, accounts: ClaimAccounts
) -> None:
    """As kube-scheduler reads a pool."""
    other = msgspec.structs.replace(offer(15), name="x", driver="gpu.nvidia.com")
    accounts.slice_changed(other)
    assert not node(ledger).devices
    old = msgspec.structs.replace(offer(9), name="old")
    accounts.relist_slices([offer(15, generation=2), old])
    assert node(ledger).total_units == 15
    accounts.relist_slices([])
    assert not node(ledger).devices


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9))), st.randoms())
def test_any_history_ends_as_a_list_does(
    events: list[tuple[int, int, int]], shuffled: random.Random
) -> None:
    """Events of claims and slices in any order; device 0 stands for a claim that is released."""
    ledger, fresh = Ledger(DEFAULT_NAMES), Ledger(DEFAULT_NAMES)
    accounts, listed = (ClaimAccounts(each) for each in (ledger, fresh))
    last: dict[int, Any] = {}
    moves = [(number, device, gib) for number, device, gib in events]
    late = shuffled.randint(0, len(moves))
    ledger.node_changed(Node(N1))
    for place, (number, device, gib) in enumerate(moves):
        if place == late:
            accounts.slice_changed(offer(15, 15, 15))
        last[number] = claim(str(number), f"gpu-{device - 1}" if device else "", f"{gib}Gi")
        accounts.claim_changed(last[number])
    accounts.slice_changed(offer(15, 15, 15))
    listed.relist_claims(last.values())
    listed.relist_slices([offer(15, 15, 15)])
    fresh.node_changed(Node(N1))
    assert dict(node(ledger).allocations) == dict(node(fresh).allocations)
    assert [gpu.used for gpu in node(ledger).devices.values()] == [
        gpu.used for gpu in node(fresh).devices.values()
    ]


def test_a_claim_follows_its_gpu_to_another_index(ledger: Ledger, accounts: ClaimAccounts) -> None:
    """Names of devices are UUIDs; indexes can change when the driver is loaded again."""
    accounts.claim_changed(claim("c", "gpu-1", "7Gi"))
    assert node(ledger).pending == 7 * 1024
    accounts.slice_changed(offer(15, 15))
    assert [gpu.used for gpu in node(ledger).devices.values()] == [0, 7]
    swapped = tuple(
        msgspec.structs.replace(each, index=1 - each.index) for each in offer(15, 15).devices
    )
    accounts.slice_changed(msgspec.structs.replace(offer(15, 15), devices=swapped))
    assert [gpu.used for gpu in node(ledger).devices.values()] == [7, 0]
    assert node(ledger).pending == 0
