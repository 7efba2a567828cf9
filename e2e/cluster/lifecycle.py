"""A named kind cluster: made or found again, waited for, and removed.

A cluster of the name that runs is used again as it is, even if the configuration has changed since.
One of another node image is made anew, and one whose nodes have stopped, or were started again (the
engine or the machine was restarted): such nodes may have swapped their addresses, and look healthy
until a pod is to start.
"""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Protocol

import offline
from cluster import engine, nodeimage, tools
from cluster.nodeimage import NodeImage
from cluster.tools import Tools
from host.commands import run_command
from host.errors import SetupError
from host.progress import say, step

_CREATE_TIMEOUT_S = 420.0
_DELETE_TIMEOUT_S = 300.0
READY_TIMEOUT_S = 180.0
# kind starts a node right after making it; a later start is another one.
_FIRST_START_S = 120.0
_READY_CHECKS = (
    ("wait", "--for=condition=Ready", "node", "--all"),
    ("--namespace=kube-system", "rollout", "status", "daemonset/kube-proxy"),
)


class Create(Protocol):
    """Makes a cluster that is not there yet; another way than kind's command may be given."""

    def __call__(
        self, programs: Tools, name: str, image: NodeImage, *, config: Path, kubeconfig: Path
    ) -> None:
        """Return when the cluster exists and `kubeconfig` is written."""


def create(programs: Tools, name: str, image: NodeImage, *, config: Path, kubeconfig: Path) -> None:
    """Make the cluster with kind's own command."""
    files = ["--config", str(config), "--kubeconfig", str(kubeconfig)]
    command = [str(programs.kind), "create", "cluster", "--name", name, "--image", image.name]
    run_command([*command, *files], timeout_s=_CREATE_TIMEOUT_S)


def up(
    name: str, *, config: Path, kubeconfig: Path, create: Create = create, reuse: bool = True
) -> None:
    """Bring up the cluster `name`, write its kubeconfig, and return when its nodes are Ready.

    Args:
        name: of the cluster.
        config: kind's configuration.
        kubeconfig: where to write it.
        create: makes the cluster.
        reuse: take a running cluster of the name; else any is removed first.
    """
    engine.ensure()
    image = nodeimage.ensure()
    say(f"cluster {name}: {image.described()}")
    programs = tools.ensure(image)
    if name in _clusters(programs.kind):
        fault = _fault(programs.kind, name, image) if reuse else "is left from another run"
        if fault:
            say(f"cluster {name} {fault}: it is made anew")
            down(name)
    if name in _clusters(programs.kind):
        export = ["export", "kubeconfig", "--name", name, "--kubeconfig", str(kubeconfig)]
        run_command([str(programs.kind), *export], timeout_s=60)
    else:
        with step(f"create cluster {name}"):
            create(programs, name, image, config=config, kubeconfig=kubeconfig)
    if not image.has_dns:
        silence_coredns(kubeconfig, kubectl=programs.kubectl)
    wait_ready(kubeconfig, kubectl=programs.kubectl, timeout_s=READY_TIMEOUT_S)


def down(name: str) -> None:
    """Remove the cluster `name`; nothing happens when there is none."""
    with step(f"delete cluster {name}"):
        run_command(
            [tools.kind(offline.OLDEST), "delete", "cluster", "--name", name],
            timeout_s=_DELETE_TIMEOUT_S,
        )


def wait_ready(kubeconfig: Path, *, kubectl: Path, timeout_s: float) -> None:
    """Return when every node is Ready and kube-proxy serves each; SetupError after the deadline.

    CoreDNS is not waited for: a cluster of the oldest version has none.
    """
    deadline = time.monotonic() + timeout_s
    command = [str(kubectl), "--kubeconfig", str(kubeconfig)]
    with step("wait for the nodes"):
        for words in _READY_CHECKS:
            left = deadline - time.monotonic()
            try:
                run_command(
                    [*command, *words, f"--timeout={left:.3f}s"], timeout_s=max(left, 0) + 10
                )
            except SetupError as error:
                raise SetupError(
                    f"the cluster is not ready within {timeout_s:g} s, `kind export logs` shows "
                    f"more: {error}"
                ) from error


def silence_coredns(kubeconfig: Path, *, kubectl: Path) -> None:
    """Scale CoreDNS to nothing where its image cannot exist, so that no pod looks broken."""
    scale = ["--namespace=kube-system", "scale", "deployment/coredns", "--replicas=0"]
    run_command([str(kubectl), "--kubeconfig", str(kubeconfig), *scale], timeout_s=60)


def _clusters(kind: Path) -> list[str]:
    return run_command([kind, "get", "clusters", "--quiet"], timeout_s=30).split()


def _fault(kind: Path, name: str, image: NodeImage) -> str:
    """Why a cluster cannot be used again; empty when it can."""
    nodes = run_command([kind, "get", "nodes", "--name", name], timeout_s=30).split()
    for node in json.loads(run_command(["docker", "inspect", *nodes], timeout_s=30)):
        if node["Config"]["Image"] != image.name:
            return "runs another node image"
        if not node["State"]["Running"]:
            return "has stopped nodes"
        if _moment(node["State"]["StartedAt"]) - _moment(node["Created"]) > _FIRST_START_S:
            return "has nodes that were started again"
    return ""


def _moment(text: str) -> float:
    """Seconds since the epoch of a time as Docker writes it, with nine digits after the point."""
    return datetime.fromisoformat(text).timestamp()
