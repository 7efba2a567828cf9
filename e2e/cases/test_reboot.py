"""A node is shut down and started again: what its pods hold is known before and after."""

import json
from typing import Any

import pytest

from environments import podresources
from environments.case import Case
from environments.kind import KindEnvironment
from environments.waiting import until

pytestmark = pytest.mark.e2e

CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


def entries(environment: KindEnvironment, node: str, uid: str) -> list[Any]:
    """What kubelet's checkpoint on the node's disk states that a pod was given."""
    text = environment.read_stopped(node, CHECKPOINT)
    found = json.loads(text)["Data"]["PodDeviceEntries"] or []
    return [(each["ContainerName"], each["DeviceIDs"]) for each in found if each["PodUID"] == uid]


def is_ready(environment: KindEnvironment, node: str) -> bool:
    """The node is reported as ready."""
    conditions = environment.objects.node(node)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_a_rebooted_node_keeps_its_accounts_and_serves_shares_again(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """The checkpoint of kubelet outlives the reboot; pods are served anew, and none counts twice.

    They belong to a Deployment: kubelet fails a pod that it admits before the plugin registers, and
    the controller makes another.
    """
    size = environment.nodes[small][0].units
    case.kubectl.apply(case.deployment("served", size - 4, replicas=2, node=small))
    case.wait_available("served")
    uids = [case.get(name)["metadata"]["uid"] for name in case.running("served")]
    before = [entries(environment, small, uid) for uid in uids]
    assert all(before)
    environment.stop_node(small)
    try:
        until("the node is missed", lambda: not is_ready(environment, small))
        # Read before kubelet starts: it drops pods from it that it does not admit again.
        kept = [entries(environment, small, uid) for uid in uids]
    finally:
        environment.start_node(small)
    assert kept == before
    until("the node is back", lambda: is_ready(environment, small))
    environment.wait_ready()
    case.wait_available("served")
    case.create_running(*(case.pod(f"rest-{i}", 4, node=small) for i in range(2)))

    def agree() -> bool:
        uuid = {gpu.index: gpu.uuid for gpu in environment.nodes[small]}
        held = {h.pod: set(h.gpus) for h in podresources.allocated(environment, small)}
        live = [*case.running("served"), "rest-0", "rest-1"]
        return all(held.get(name) == {uuid[case.gpu(name)]} for name in live)

    until("annotations agree with kubelet", agree)
