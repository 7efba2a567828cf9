"""The control-plane node of a kind cluster as somebody logged in there has it."""

from pathlib import Path

from environments.kind import COMMANDS, KindEnvironment
from host.commands import run_command
from host.privilege import as_root

MANIFEST = "etc/kubernetes/manifests/kube-scheduler.yaml"
COMMAND_SECONDS = 600


class ControlPlaneNode:
    """Its files, and gpushare's commands for its scheduler.

    Args:
        environment: whose control plane it is.
    """

    def __init__(self, environment: KindEnvironment) -> None:
        self.environment = environment
        inspect = ["docker", "inspect", "--format", "{{.State.Pid}}", environment.control_plane]
        self.root = Path("/proc", run_command(inspect, timeout_s=30).strip(), "root")

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
