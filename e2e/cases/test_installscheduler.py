"""The cluster's own scheduler calls the extender, and is given back byte for byte."""

from collections.abc import Iterator

import pytest

from environments import secondrelease
from environments.case import Case
from environments.controlplanenode import ControlPlaneNode
from environments.kind import KindEnvironment
from environments.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def control_plane(environment: KindEnvironment) -> Iterator[ControlPlaneNode]:
    """The node; its scheduler is as before when the case ends, even when that fails."""
    node = ControlPlaneNode(environment)
    before = node.manifest()
    try:
        yield node
    finally:
        node.put_back(before)
        until("the cluster's scheduler runs", lambda: scheduling(environment))


def scheduling(environment: KindEnvironment) -> bool:
    """The static pod is there and ready."""
    chosen = ("-n", "kube-system", "-l", "component=kube-scheduler")
    pods = environment.kubectl.items("pods", *chosen)
    states = [state for pod in pods for state in pod["status"].get("containerStatuses", ())]
    return bool(states) and all(state["ready"] for state in states)


def test_the_clusters_own_scheduler_places_shares_and_is_given_back_as_it_was(
    environment: KindEnvironment, case: Case, small: str, control_plane: ControlPlaneNode
) -> None:
    """Shown first; then kube-scheduler binds through the extender, over TLS; then all is undone."""
    manifest, files = control_plane.manifest(), control_plane.files()
    own = {"scheduler": {"mode": "extender", "replicas": 1, "tolerations": []}}
    with secondrelease.release(environment, "own", own):
        shown = control_plane.gpushare("install-scheduler")
        assert "enableHTTPS: true" in shown
        assert control_plane.manifest() == manifest

        control_plane.gpushare("install-scheduler", "--apply")
        # The stack's webhook would give the pod to the stack's own scheduler.
        case.kubectl("label", "namespace", case.name, "gpushare/webhook=disabled")
        share = case.pod("share", 2, node=small)
        share["spec"]["schedulerName"] = "default-scheduler"
        case.create_running(share)
        assert case.annotations("share")["ALIYUN_COM_GPU_MEM_POD"] == "2"
        home = environment.nodes[small][case.gpu("share")]
        assert case.env("share")["NVIDIA_VISIBLE_DEVICES"] == home.uuid
        until("an event names its place", lambda: case.events("GpuPlaced", "share"))
        assert control_plane.gpushare("install-scheduler", "--apply") == ""

        control_plane.gpushare("uninstall-scheduler", "--apply")
    assert control_plane.manifest() == manifest
    assert control_plane.files() == files
