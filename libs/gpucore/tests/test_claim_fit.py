"""Claims on the devices of one node: kube-scheduler 1.37.1 decides each of these cases alike."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpucore.accounting.claim_offers import by_index
from gpucore.accounting.claims import ClaimAccounts
from gpucore.accounting.ledger import Ledger
from gpucore.claims.node_fit import ClaimNode, ClaimRules, first_fit, refusal
from gpucore.model import Code, FitError
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.claim.claim_specs import DeviceClass, decode_claim_spec
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import ResourceSlice
from gpucore.wire.names import CLAIM_DRIVER, DEFAULT_NAMES
from gpucore.wire.node.spec import Node

N1 = NodeName("n1")
CLASSES = {"any": DeviceClass("any", (f"device.driver == '{CLAIM_DRIVER}'",))}
Object = Mapping[str, Any]
Amounts = Mapping[GpuIndex, int]


def gpu(index: int, gib: int = 16, **more: Any) -> SliceDevice:
    """A GPU that is shared in steps of 1 GiB."""
    name, uuid = f"gpu-{index}", f"GPU-{index}"
    step = 1024 if more.get("shared", True) else 0
    return SliceDevice(name, index, uuid, memory_mib=gib * 1024, step_mib=step, **more)


def wants(memory: str = "", count: int = 1, **more: Any) -> Object:
    """A way to satisfy a request."""
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    return {"deviceClassName": "any", "count": count, **capacity, **more}


def requests(*of: Object) -> list[Object]:
    """Requests ``r0``, ``r1`` and so on."""
    return [{"name": f"r{place}", "exactly": each} for place, each in enumerate(of)]


class World:
    """The node ``n1`` with these devices, and its claims."""

    def __init__(self, *devices: SliceDevice) -> None:
        ledger = Ledger(DEFAULT_NAMES)
        ledger.node_changed(Node(N1))
        self._accounts = ClaimAccounts(ledger)
        self._accounts.slice_changed(ResourceSlice("s", CLAIM_DRIVER, "n1", "n1", devices))
        info = ledger.node(N1)
        assert info is not None
        self.node = ClaimNode(info, by_index(devices))

    def hold(self, *devices: str) -> None:
        """A claim with a share of 1 GiB for every name."""
        base = {"driver": CLAIM_DRIVER, "pool": "n1", "consumedCapacity": {"memory": "1Gi"}}
        results = [{**base, "request": "r", "device": name} for name in devices]
        status = {"allocation": {"devices": {"results": results}}}
        found = {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "status": status}
        self._accounts.claim_changed(decode_claim(json.dumps(found).encode()))

    def _rules(self, asked: Sequence[Object], constraints: Sequence[Object]) -> ClaimRules:
        devices = {"requests": asked, "constraints": constraints}
        found = {"metadata": {"name": "c"}, "spec": {"devices": devices}}
        return ClaimRules((decode_claim_spec(json.dumps(found).encode())[2],), CLASSES)

    def memory(
        self, asked: Sequence[Object], *constraints: Object
    ) -> Mapping[GpuIndex, int] | None:
        """GiB on each GPU where the claim fits; ``None`` where it does not."""
        rules = self._rules(asked, constraints)
        placement, why = first_fit(self.node, rules), refusal(self.node, rules)
        assert (placement is None) == (why is not None)
        return None if placement is None else placement.mem

    def code(self, asked: Sequence[Object]) -> tuple[Code, str] | None:
        """Why the claim does not fit, with the words that no figure has."""
        why = self.refused(asked)
        return None if why is None else (why.code, why.detail)

    def refused(self, asked: Sequence[Object], *constraints: Object) -> FitError | None:
        """Why the claim does not fit."""
        return refusal(self.node, self._rules(asked, constraints))


def test_the_devices_of_one_request_differ() -> None:
    """``count: 2`` takes two GPUs without any constraint; two requests may share one."""
    assert World(gpu(0), gpu(1)).memory(requests(wants("2Gi", 2))) == {0: 2, 1: 2}
    assert World(gpu(0)).memory(requests(wants("2Gi", 2))) is None
    assert World(gpu(0)).memory(requests(wants("2Gi"), wants("2Gi"))) == {0: 4}


def test_a_request_for_more_gpus_than_there_are_has_these_figures() -> None:
    """No GPU is too small: there are too few."""
    why = World(gpu(0)).code(requests(wants("2Gi", 2)))
    assert why == (Code.INSUFFICIENT_GPUS, "")


def test_a_request_for_several_shares_has_figures_of_the_gpus_that_are_too_small() -> None:
    """As a pod that requests a share over several GPUs."""
    world = World(gpu(0), gpu(1, 2))
    world.hold("gpu-1")
    why = world.refused(requests(wants("2Gi", 2)))
    assert why is not None
    assert (why.code, why.requested, why.free, why.total) == (Code.INSUFFICIENT_MEMORY, 2, 1, 2)
    assert [(each.index, each.free) for each in why.gpus] == [(1, 1)]


def test_every_alternative_of_a_request_has_its_own_number_of_devices() -> None:
    """All devices of a request are of one alternative."""
    several = {"name": "two", **wants("2Gi", 2)}
    one = {"name": "one", **wants("3Gi")}
    asked = [{"name": "gpu", "firstAvailable": [several, one]}]
    assert World(gpu(0)).memory(asked) == {0: 3}
    assert World(gpu(0), gpu(1)).memory(asked) == {0: 2, 1: 2}


def test_a_constraint_can_name_one_alternative_of_a_request() -> None:
    """The other alternative is not bound by it."""
    ways = [{"name": "two", **wants("2Gi", 2)}, {"name": "one", **wants("3Gi")}]
    asked = [{"name": "gpu", "firstAvailable": ways}]
    same = {"requests": ["gpu/two"], "matchAttribute": f"{CLAIM_DRIVER}/numaNode"}
    assert World(gpu(0, numa=0), gpu(1, numa=1)).memory(asked, same) == {0: 3}
    assert World(gpu(0, numa=1), gpu(1, numa=1)).memory(asked, same) == {0: 2, 1: 2}


def test_a_request_for_all_devices_leaves_out_those_that_are_too_small() -> None:
    """A device that is in use counts: the request waits for it."""
    asked = requests({**wants("8Gi"), "allocationMode": "All"})
    world = World(gpu(0, 4), gpu(1, 8), gpu(2))
    assert world.memory(asked) == {1: 8, 2: 8}
    world.hold("gpu-1")
    assert world.memory(asked) is None


def test_a_constraint_that_excludes_one_of_all_devices_is_an_error() -> None:
    """kube-scheduler tries no alternative, and no other GPU for an earlier request."""
    same = {"matchAttribute": f"{CLAIM_DRIVER}/numaNode"}
    every = {**wants("1Gi"), "allocationMode": "All"}
    world = World(gpu(0, numa=0), gpu(1, numa=1))
    ways = [{"name": "all", **every}, {"name": "one", **wants("1Gi")}]
    why = world.refused([{"name": "gpu", "firstAvailable": ways}], same)
    assert why is not None
    assert why.ends_attempt
    words = f"matchAttribute {CLAIM_DRIVER}/numaNode excludes GPU 1"
    detail = f"{words} from a request with allocationMode All"
    assert (why.code, why.detail) == (Code.DEVICE_CONSTRAINT, detail)
    selector = f'device.attributes["{CLAIM_DRIVER}"].numaNode == 1'
    chosen = {**every, "selectors": [{"cel": {"expression": selector}}]}
    assert world.memory(requests(wants("1Gi"), chosen), same) is None


def test_a_device_in_use_ends_a_request_for_all_before_a_constraint() -> None:
    """kube-scheduler takes the next alternative then."""
    same = {"matchAttribute": f"{CLAIM_DRIVER}/numaNode"}
    every = {**wants("16Gi"), "allocationMode": "All"}
    ways = [{"name": "all", **every}, {"name": "one", **wants("1Gi")}]
    world = World(gpu(0, numa=0), gpu(1, numa=1))
    world.hold("gpu-0")
    assert world.memory([{"name": "gpu", "firstAvailable": ways}], same) == {0: 1}


def test_a_capacity_that_no_device_has_is_named() -> None:
    """kube-scheduler compares names as they are published, and those have no domain."""
    name = f"{CLAIM_DRIVER}/memory"
    asked = requests({**wants(), "capacity": {"requests": {name: "2Gi"}}})
    detail = f"requested capacity {name}: GPUs have memory and compute"
    assert World(gpu(0)).code(asked) == (Code.SELECTOR, detail)


def test_a_number_of_shares_can_be_requested_where_it_is_limited() -> None:
    """Other devices do not have this capacity."""
    asked = requests({**wants(), "capacity": {"requests": {"memory": "2Gi", "shares": "1"}}})
    assert World(gpu(0), gpu(1, max_shares=2)).memory(asked) == {1: 2}


def test_a_mig_instance_has_100_percent_of_compute() -> None:
    """A request for more fits nowhere."""
    world = World(gpu(0, shared=False, isolation="mig"))
    asked = requests({**wants(), "capacity": {"requests": {"compute": "101"}}})
    assert world.code(asked) == (Code.COMPUTE_TOO_LARGE, "")


def test_a_selector_that_is_an_error_for_a_gpu_ends_the_search() -> None:
    """kube-scheduler tries no GPU behind the one without the attribute."""
    selector = f'device.attributes["{CLAIM_DRIVER}"].numaNode == 0'
    asked = requests({**wants("1Gi"), "selectors": [{"cel": {"expression": selector}}]})
    detail = f"selector {selector} is an error for GPU 0"
    assert World(gpu(0), gpu(1, numa=0)).code(asked) == (Code.SELECTOR, detail)
    assert World(gpu(0, numa=0), gpu(1)).memory(asked) == {0: 1}


def test_two_shares_of_one_claim_are_two_of_the_limit() -> None:
    """The claim of a pod with two containers, for example."""
    world = World(gpu(0, max_shares=2), gpu(1, max_shares=2))
    world.hold("gpu-0", "gpu-0")
    assert world.memory(requests(wants("1Gi"))) == {1: 1}
    world.hold("gpu-0", "gpu-1")
    assert world.memory(requests(wants("1Gi"))) == {0: 1}
