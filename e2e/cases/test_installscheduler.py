"""The cluster's own scheduler calls the extender, and is given back byte for byte."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.commands import run
from cluster.privilege import as_root
from environments import beside
from environments.case import Case
from environments.kind import COMMANDS, KindEnvironment
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

MANIFEST = "etc/kubernetes/manifests/kube-scheduler.yaml"
COMMAND_SECONDS = 200


class ControlPlane:
    """The control-plane node as somebody logged in there has it.

    Args:
        environment: whose control plane it is.
    """

    def __init__(self, environment: KindEnvironment) -> None:
        self.environment = environment
        inspect = ["docker", "inspect", "--format", "{{.State.Pid}}", environment.control_plane]
        self.root = Path("/proc", run(inspect, timeout_s=30).strip(), "root")

    def gpushare(self, command: str, *flags: str) -> str:
        """Run one of the two commands; what it shows."""
        access = ["--root", str(self.root), "--kubeconfig", str(self.environment.kubeconfig)]
        words: list[str | Path] = [COMMANDS / "gpushare", command, *flags]
        return as_root([*words, *access], timeout_s=COMMAND_SECONDS)

    def manifest(self) -> str:
        """The static pod of kube-scheduler."""
        return as_root(["cat", self.root / MANIFEST], timeout_s=30)

    def files(self) -> set[str]:
        """Everything under /etc/kubernetes."""
        return set(as_root(["find", self.root / "etc/kubernetes"], timeout_s=30).split())

    def put_back(self, manifest: str) -> None:
        """Make sure of the manifest, whatever a case has done."""
        if self.manifest() != manifest:
            as_root(["tee", self.root / MANIFEST], timeout_s=30, stdin=manifest)


@pytest.fixture
def control_plane(environment: KindEnvironment) -> Iterator[ControlPlane]:
    """The node; its scheduler is as before when the case ends, even when that fails."""
    node = ControlPlane(environment)
    before = node.manifest()
    try:
        yield node
    finally:
        node.put_back(before)
        until("the cluster's scheduler runs", lambda: scheduling(environment), seconds=120)


def scheduling(environment: KindEnvironment) -> bool:
    """The static pod is there and ready."""
    chosen = ("-n", "kube-system", "-l", "component=kube-scheduler")
    pods = environment.kubectl.items("pods", *chosen)
    states = [state for pod in pods for state in pod["status"].get("containerStatuses", ())]
    return bool(states) and all(state["ready"] for state in states)


def test_the_clusters_own_scheduler_places_shares_and_is_given_back_as_it_was(
    environment: KindEnvironment, case: Case, small: str, control_plane: ControlPlane
) -> None:
    """Shown first; then kube-scheduler binds through the extender, over TLS; then all is undone."""
    manifest, files = control_plane.manifest(), control_plane.files()
    own = {"scheduler": {"mode": "extender", "replicas": 1, "tolerations": []}}
    with beside.release(environment, "own", own):
        shown = control_plane.gpushare("install-scheduler")
        assert "enableHTTPS: true" in shown
        assert control_plane.manifest() == manifest

        control_plane.gpushare("install-scheduler", "--apply")
        # The stack's webhook would give the pod to the stack's own scheduler.
        case.kubectl("label", "namespace", case.name, "gpushare/webhook=disabled")
        share = case.pod("share", 2, node=small)
        share["spec"]["schedulerName"] = "default-scheduler"
        case.run(share)
        assert case.annotations("share")["ALIYUN_COM_GPU_MEM_POD"] == "2"
        home = environment.nodes[small][case.card("share")]
        assert case.env("share")["NVIDIA_VISIBLE_DEVICES"] == home.uuid
        until("it is told where", lambda: case.events("GpuPlaced", "share"), seconds=120)
        assert control_plane.gpushare("install-scheduler", "--apply") == ""

        control_plane.gpushare("uninstall-scheduler", "--apply")
    assert control_plane.manifest() == manifest
    assert control_plane.files() == files
