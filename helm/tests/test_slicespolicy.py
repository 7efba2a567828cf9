"""The policy of the device plugin's account for ResourceSlices: only those of its node."""

import json

import msgspec
import pytest
from admission import SELF, Policy, request
from charting import Object, render

from gpucore.model import Gpu
from gpucore.units import GIB, GpuIndex, GpuUuid
from gpucore.wire.claim.devices import device_of
from gpucore.wire.claim.resource_slices import ResourceSlice, encode_slice
from gpucore.wire.names import CLAIM_DRIVER

GPU = device_of(Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15), GIB)
OWN = ResourceSlice("n1-gpu", CLAIM_DRIVER, "n1", "n1", (GPU,), node_uid="uid-n1")


def written(found: ResourceSlice = OWN, **changes: str) -> Object:
    """The object that the plugin writes, with these fields of the slice."""
    raw = msgspec.json.encode(encode_slice(msgspec.structs.replace(found, **changes)))
    item: Object = json.loads(raw)
    return item


@pytest.fixture(scope="module")
def policy() -> Policy:
    """As a cluster with claims gets it."""
    return Policy(render("1.37.1", {"claims": {"enabled": True}}), "-resource-slices")


def admission_request(verb: str, *, node: str = "n1", user: str = SELF) -> Object:
    """A request of the plugin on this node."""
    return request(user, node=node, resource="resourceslices", verb=verb)


def test_the_plugin_writes_and_deletes_the_slice_of_its_node(policy: Policy) -> None:
    """As it does when GPUs change, and when the node changes to devices."""
    assert policy.refuses(admission_request("CREATE"), None, written()) == ""
    assert policy.refuses(admission_request("UPDATE"), written(), written()) == ""
    assert policy.refuses(admission_request("DELETE"), written(), {}) == ""


@pytest.mark.parametrize("verb", ["CREATE", "UPDATE", "DELETE"])
def test_the_token_of_another_node_writes_none_of_them(policy: Policy, verb: str) -> None:
    """A compromised node can neither remove the GPUs of others nor make some up."""
    before, after = written(), ({} if verb == "DELETE" else written())
    answer = policy.refuses(admission_request(verb, node="n2"), before, after)
    assert answer == "the device plugin publishes only the ResourceSlices of its own node"
    assert "its own node" in policy.refuses(admission_request(verb, node=""), before, after)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pool": "n2"}, "its own node"),
        ({"driver": "gpu.nvidia.com"}, "its own driver"),
    ],
)
def test_another_pool_or_driver_is_refused(
    policy: Policy, changes: dict[str, str], sentence: str
) -> None:
    """A pool of another node would be counted as GPUs of that node."""
    assert sentence in policy.refuses(admission_request("CREATE"), None, written(**changes))


def test_a_slice_belongs_to_its_own_node(policy: Policy) -> None:
    """Another owner could have it deleted, or keep it."""
    item = written()
    item["metadata"]["ownerReferences"][0] |= {"kind": "ConfigMap", "name": "n1"}
    assert "belongs to its own node" in policy.refuses(admission_request("CREATE"), None, item)


def test_a_slice_of_no_node_is_refused(policy: Policy) -> None:
    """It would be for all nodes."""
    item = written()
    del item["spec"]["nodeName"]
    item["spec"]["allNodes"] = True
    assert "its own node" in policy.refuses(admission_request("CREATE"), None, item)


def test_other_accounts_are_no_concern_of_it(policy: Policy) -> None:
    """Kubelet removes the slices of its node; other drivers publish theirs."""
    other = admission_request("DELETE", user="system:node:n2", node="")
    assert policy.refuses(other, written(), {}) == ""
