"""CDI devices: what a runtime is instructed to apply, and which files may go."""

import json

import pytest
from msgspec.structs import replace
from nodepods import machine

from gpucore.model import IsolationMode
from gpucore.node.allocation.device_ids import Resource, device_table
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import Grant, GrantPolicy, grant, on_known_gpus, shares_held
from gpucore.node.isolation.cdi import (
    CDI_KIND,
    Support,
    cdi_spec,
    orphans,
    read_device,
    support_of,
)
from gpucore.node.isolation.mps_grant import HostMount, MpsPlace
from gpucore.units import GpuIndex

INVENTORY = machine(15, 15)
POLICY = GrantPolicy(cdi=True)
MPS = GrantPolicy(cdi=True, mps=MpsPlace("/run/mps"))
ON_MPS = replace(
    INVENTORY, gpus=tuple(replace(gpu, isolation=IsolationMode.MPS) for gpu in INVENTORY.gpus)
)


def granted(
    amounts: dict[int, int], *, resource: Resource = Resource.MEM, core: bool = False
) -> Grant:
    """A grant of so many units on these GPUs."""
    gpus = {GpuIndex(index): units for index, units in amounts.items()}
    return grant(resource, gpus, INVENTORY, POLICY, core_follows=core)


@pytest.mark.parametrize(
    ("kubelet", "runtime", "support"),
    [
        ("v1.36.2", "containerd://2.1.9", Support.CERTAIN),
        ("v1.30.4-eks-36c2a22", "containerd://1.7.22-k3s1", Support.POSSIBLE),
        ("v1.29.0", "cri-o://1.28.1", Support.CERTAIN),
        ("v1.28.15", "cri-o://1.28.11", Support.POSSIBLE),
        ("v1.28.15", "containerd://2.0.0", Support.POSSIBLE),
        ("v1.27.9", "containerd://2.0.0", Support.NONE),
        ("v1.30.0", "containerd://1.6.33", Support.NONE),
        ("v1.30.0", "docker://27.1.0", Support.NONE),
        ("", "", Support.NONE),
        ("v1.30.0", "containerd://Unknown", Support.NONE),
    ],
)
def test_support_is_read_from_the_nodes_versions(
    kubelet: str, runtime: str, support: Support
) -> None:
    """Kubelet 1.28 and containerd 1.7 have CDI off unless configured, later ones have it on."""
    assert support_of(kubelet, runtime) is support


def test_the_name_of_a_device_does_not_depend_on_the_order_of_its_gpus() -> None:
    """Kubelet's record of the container, read later, may list them in another order."""
    first, other = granted({0: 4, 1: 2}).share, granted({1: 2, 0: 4}).share
    assert first is not None
    assert other is not None
    assert first.name == other.name


def test_a_mount_is_read_only_where_its_grant_is() -> None:
    """A container that may write to a directory of the host could replace what others read."""
    mounts = [HostMount("/host/a", "/a", read_only=True), HostMount("/host/b", "/b")]
    (device,) = json.loads(cdi_spec(CDI_KIND, {"d": ({}, mounts)}))["devices"]
    found = {each["hostPath"]: each for each in device["containerEdits"]["mounts"]}
    assert found["/host/a"]["options"][0] == "ro"
    assert found["/host/b"]["options"][0] == "rw"
    assert found["/host/a"]["containerPath"] == "/a"


def test_a_share_is_one_device_with_all_its_variables() -> None:
    """The file has the environment that the answer to kubelet has, under the name in it."""
    share = granted({1: 4}).share
    assert share is not None
    spec = json.loads(share.spec)
    (device,) = spec["devices"]
    assert f"{spec['kind']}={device['name']}" == share.qualified_name
    assert granted({1: 4}).cdi_devices == (share.qualified_name,)
    env = dict(each.split("=", 1) for each in device["containerEdits"]["env"])
    assert env == granted({1: 4}).envs
    assert share.qualified_name.startswith(f"{CDI_KIND}={Resource.MEM}-")


def test_mounts_are_delivered_too() -> None:
    """A volume of the pod at the path of the MPS pipes would hide the daemon."""
    share = grant(Resource.MEM, {GpuIndex(0): 3}, ON_MPS, MPS).share
    assert share is not None
    mounts = json.loads(share.spec)["devices"][0]["containerEdits"]["mounts"]
    assert [each["containerPath"] for each in mounts][-1] == "/dev/shm"
    assert all("bind" in each["options"] for each in mounts)


def test_equal_grants_share_a_device_and_others_do_not() -> None:
    """Amount, GPU, resource and compute beside memory make the name."""
    names = {
        str(each.share and each.share.name)
        for each in (
            granted({1: 4}),
            granted({1: 4}),
            granted({1: 5}),
            granted({0: 4}),
            granted({0: 2, 1: 2}),
            granted({1: 4}, resource=Resource.CORE),
        )
    }
    assert len(names) == 5


def test_devices_are_written_again_from_kubelets_list() -> None:
    """After a reboot the files are gone; kubelet's record still names the devices."""
    tables = {each: device_table(INVENTORY, each) for each in Resource}
    ids = tables[Resource.MEM].ids[GpuIndex(1)][:4]
    held = Held("default", "p", {"c": {Resource.MEM: ids}})
    found = shares_held([held], tables, INVENTORY, POLICY)
    share = granted({1: 4}).share
    assert share is not None
    assert found == {share.name: share}
    assert shares_held([held], tables, INVENTORY, GrantPolicy()) == {}
    assert shares_held([held], tables, machine(15), POLICY) == {}


def test_a_device_of_a_gpu_that_is_not_known_is_noticed() -> None:
    """Of the devices that kubelet lists, one has no GPU here."""
    tables = {each: device_table(INVENTORY, each) for each in Resource}
    first, second = (tables[Resource.MEM].ids[GpuIndex(gpu)][:2] for gpu in (0, 1))
    held = Held("default", "p", {"c": {Resource.MEM: first}, "d": {Resource.MEM: second}})
    assert on_known_gpus([held], tables)
    assert not on_known_gpus([held], {each: device_table(machine(15), each) for each in Resource})


def test_with_mps_both_devices_of_a_memory_share_are_written_again() -> None:
    """Compute beside memory decides who limits threads; kubelet's list is not sure of it."""
    tables = {each: device_table(ON_MPS, each) for each in Resource}
    ids = tables[Resource.MEM].ids[GpuIndex(0)][:3]
    held = Held("default", "p", {"c": {Resource.MEM: ids}})
    expected = {
        grant(Resource.MEM, {GpuIndex(0): 3}, ON_MPS, MPS, core_follows=core).cdi_devices[0]
        for core in (False, True)
    }
    found = shares_held([held], tables, ON_MPS, MPS)
    assert {each.qualified_name for each in found.values()} == expected
    assert len(expected) == 2


def test_both_devices_of_a_share_that_the_driver_limits_are_written_again() -> None:
    """The limit of a pod that may use more is another one; kubelet's list does not state it."""
    limited = (replace(gpu, isolation=IsolationMode.DRIVER) for gpu in INVENTORY.gpus)
    inventory = replace(INVENTORY, gpus=tuple(limited))
    tables = {each: device_table(inventory, each) for each in Resource}
    held = Held("default", "p", {"c": {Resource.MEM: tables[Resource.MEM].ids[GpuIndex(0)][:3]}})
    expected = {
        grant(Resource.MEM, {GpuIndex(0): 3}, inventory, POLICY, bursts=bursts).cdi_devices[0]
        for bursts in (False, True)
    }
    found = shares_held([held], tables, inventory, POLICY)
    assert {each.qualified_name for each in found.values()} == expected
    assert len(expected) == 2


def test_a_file_of_an_earlier_plugin_is_read_back() -> None:
    """What is no device of ours is nothing."""
    share = granted({1: 4}).share
    assert share is not None
    assert read_device(share.spec) == share
    for text in (b"", b"{", b'{"devices": []}', b'{"devices": [{"name": "x"}]}', b"[1]"):
        assert read_device(text) is None


def test_only_devices_that_no_container_can_name_are_orphans() -> None:
    """Those in use stay, and those on GPUs of a pod whose init containers may start again."""
    first, second = granted({0: 4}).share, granted({1: 8}).share
    assert first is not None
    assert second is not None
    both = {first.name: first, second.name: second}
    assert orphans(both, {first.name}, ()) == {second.name}
    assert orphans(both, (), [second.visible]) == {first.name}
    assert orphans(both, (), [first.visible | second.visible]) == set()
