"""A node is shut down and started again: what its pods hold is known before and after."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from environments import podresources
from environments.case import Case
from environments.kind import KindEnvironment
from environments.nodereadiness import is_ready
from environments.waiting import until

pytestmark = pytest.mark.e2e

CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


def entries(environment: KindEnvironment, node: str, uid: str) -> list[Any]:
    """What kubelet's checkpoint on the node's disk states that a pod was given."""
    text = environment.read_stopped(node, CHECKPOINT)
    found = json.loads(text)["Data"]["PodDeviceEntries"] or []
    return [(each["ContainerName"], each["DeviceIDs"]) for each in found if each["PodUID"] == uid]


def internal_ip(environment: KindEnvironment, node: str) -> str:
    """The address that kubelet reports."""
    addresses = environment.objects.node(node)["status"]["addresses"]
    return next(str(each["address"]) for each in addresses if each["type"] == "InternalIP")


@contextmanager
def restarted(environment: KindEnvironment, node: str, address: str) -> Iterator[None]:
    """Start a stopped node at the end, while another container has the address that it had."""
    with environment.address_taken(address):
        try:
            yield
        finally:
            environment.start_node(node)


def test_a_rebooted_node_keeps_its_accounts_and_serves_shares_again(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """The checkpoint of kubelet outlives the reboot; pods are served anew, and none counts twice.

    The node comes back with another address, since another container took its own meanwhile. Pods
    belong to a Deployment: kubelet fails a pod that it admits before the plugin registers, and
    the controller makes another.
    """
    size = environment.nodes[small][0].units
    case.kubectl.apply(case.deployment("served", size - 4, replicas=2, node=small))
    case.wait_available("served")
    uids = [case.get(name)["metadata"]["uid"] for name in case.running("served")]
    before = [entries(environment, small, uid) for uid in uids]
    assert all(before)
    address = internal_ip(environment, small)
    environment.stop_node(small)
    with restarted(environment, small, address):
        until("the node is missed", lambda: not is_ready(small, environment.objects))
        # Read before kubelet starts: it drops pods from it that it does not admit again.
        kept = [entries(environment, small, uid) for uid in uids]
    assert kept == before
    until("the node has another address", lambda: internal_ip(environment, small) != address)
    environment.wait_node_ready(small)
    environment.wait_ready()
    case.wait_available("served")
    case.create_running(*(case.pod(f"rest-{i}", 4, node=small) for i in range(2)))

    def agree() -> bool:
        uuid = {gpu.index: gpu.uuid for gpu in environment.nodes[small]}
        held = {h.pod: set(h.gpus) for h in podresources.allocated(environment, small)}
        live = [*case.running("served"), "rest-0", "rest-1"]
        return all(held.get(name) == {uuid[case.gpu(name)]} for name in live)

    until("annotations agree with kubelet", agree)
