"""A named kind cluster: made or found again, waited for, and removed.

A cluster of the name that runs is used again as it is, even if the configuration has changed since.
Made anew is one of another node image, one whose creation was interrupted, and one whose nodes have
stopped or were started again (the engine or the machine was restarted): such nodes may have swapped
their addresses, and look healthy until a pod is to start.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol

import offline
from cluster import engine, nodefaults, nodeimage, tools
from cluster.nodeimage import NodeImage
from cluster.tools import Tools
from host.commands import run_command
from host.errors import SetupError
from host.progress import say, step
from host.waiting import DeadlineError, until
from preflight.require import require

_CREATE_TIMEOUT_S = 420.0
_DELETE_TIMEOUT_S = 300.0
_DELETE_TRIES = 3
READY_TIMEOUT_S = 180.0
# kind starts a node right after making it; a later start is another one.
_FIRST_START_S = 120.0
_FINAL_CHECK_S = 15.0
_READY_CHECKS = (
    ("wait", "--for=condition=Ready", "node", "--all"),
    ("--namespace=kube-system", "rollout", "status", "daemonset/kube-proxy"),
)


class Create(Protocol):
    """Makes a cluster that is not there yet; another way than kind's command may be given.

    Nodes of a creation that failed must stay: their logs name the cause.
    """

    def __call__(
        self, programs: Tools, name: str, image: NodeImage, *, config: Path, kubeconfig: Path
    ) -> None:
        """Return when the cluster exists and `kubeconfig` is written."""


def create(programs: Tools, name: str, image: NodeImage, *, config: Path, kubeconfig: Path) -> None:
    """Make the cluster with kind's own command."""
    files = ["--config", str(config), "--kubeconfig", str(kubeconfig), "--retain"]
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
        fault = (
            _fault(programs.kind, name, image, kubeconfig) if reuse else "is left from another run"
        )
        if fault:
            say(f"cluster {name} {fault}: it is made anew")
            down(name)
    if name in _clusters(programs.kind):
        export = ["export", "kubeconfig", "--name", name, "--kubeconfig", str(kubeconfig)]
        run_command([str(programs.kind), *export], timeout_s=60)
    else:
        require()
        _marker(kubeconfig).unlink(missing_ok=True)
        with step(f"create cluster {name}"), _named_cause(programs.kind, name):
            create(programs, name, image, config=config, kubeconfig=kubeconfig)
        _marker(kubeconfig).write_text(_ids(nodes_of(programs.kind, name)))
    if not image.has_dns:
        silence_coredns(kubeconfig, kubectl=programs.kubectl)
    nodes = nodes_of(programs.kind, name)
    wait_ready(kubeconfig, nodes, kubectl=programs.kubectl, timeout_s=READY_TIMEOUT_S)


@contextmanager
def _named_cause(kind: Path, name: str) -> Iterator[None]:
    """Add to the error of a failed creation what its nodes logged, and remove them."""
    try:
        yield
    except (SetupError, subprocess.CalledProcessError, DeadlineError) as error:
        causes = nodefaults.report(nodes_of(kind, name))
        down(name)
        raise SetupError(f"cluster {name} was not created: {causes}\n  {error}") from error


def down(name: str) -> None:
    """Remove the cluster `name`; nothing happens when there is none.

    On a busy machine Docker may report that it could not kill a node within its 10 s. The node ends
    a moment later, and the next try removes it.
    """
    command = (str(tools.kind(offline.OLDEST)), "delete", "cluster", "--name", name)
    with step(f"delete cluster {name}"):
        for _ in range(_DELETE_TRIES - 1):
            try:
                run_command(command, timeout_s=_DELETE_TIMEOUT_S)
            except SetupError as error:
                say(f"cluster {name} is deleted again: {str(error).strip().splitlines()[-1]}")
            else:
                return
        run_command(command, timeout_s=_DELETE_TIMEOUT_S)


def wait_ready(kubeconfig: Path, nodes: Sequence[str], *, kubectl: Path, timeout_s: float) -> None:
    """Return when every node has registered and is Ready, and kube-proxy serves each.

    CoreDNS is not waited for: a cluster of the oldest version has none.

    Raises:
        SetupError: not within ``timeout_s`` seconds, or never; names the node and the cause.
    """
    deadline = time.monotonic() + timeout_s
    command = [str(kubectl), "--kubeconfig", str(kubeconfig)]
    with step("wait for the nodes"):
        wait_registered(command, nodes, seconds=timeout_s)
        for words in _READY_CHECKS:
            left = deadline - time.monotonic()
            try:
                run_command(
                    [*command, *words, f"--timeout={left:.3f}s"], timeout_s=max(left, 0) + 10
                )
            except SetupError as error:
                raise SetupError(
                    f"the cluster is not ready within {timeout_s:g} s: "
                    f"{nodefaults.report(nodes)}\n  {error}"
                ) from error


def wait_registered(kubectl: Sequence[str], nodes: Sequence[str], *, seconds: float) -> None:
    """Return when the API server has a Node of each of these names.

    Raises:
        SetupError: one is missing after ``seconds``, or can never register; names the cause.
    """
    missing: list[str] = []
    checked = time.monotonic()

    def registered() -> bool:
        nonlocal checked
        missing[:] = _unregistered(kubectl, nodes)
        if missing and time.monotonic() - checked > _FINAL_CHECK_S:
            nodefaults.end_if_final(missing)
            checked = time.monotonic()
        return not missing

    try:
        until("every node registers", registered, seconds=seconds)
    except DeadlineError as error:
        raise SetupError(
            f"{', '.join(missing)} did not register with the API server within {seconds:g} s: "
            f"{nodefaults.report(missing)}"
        ) from error


def _unregistered(kubectl: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Those of the nodes that the API server lacks; all while it does not answer."""
    try:
        found = run_command([*kubectl, "get", "nodes", "--output=name"], timeout_s=60).split()
    except SetupError:
        found = []
    return [node for node in nodes if f"node/{node}" not in found]


def silence_coredns(kubeconfig: Path, *, kubectl: Path) -> None:
    """Scale CoreDNS to nothing where its image cannot exist, so that no pod looks broken."""
    scale = ["--namespace=kube-system", "scale", "deployment/coredns", "--replicas=0"]
    run_command([str(kubectl), "--kubeconfig", str(kubeconfig), *scale], timeout_s=60)


def _clusters(kind: Path) -> list[str]:
    return run_command([kind, "get", "clusters", "--quiet"], timeout_s=30).split()


def nodes_of(kind: Path, name: str) -> list[str]:
    """Names of the node containers of a cluster."""
    return run_command([kind, "get", "nodes", "--name", name], timeout_s=30).split()


def _fault(kind: Path, name: str, image: NodeImage, kubeconfig: Path) -> str:
    """Why a cluster cannot be used again; empty when it can."""
    nodes = nodes_of(kind, name)
    if not nodes:
        return "has no nodes"
    for node in json.loads(run_command(["docker", "inspect", *nodes], timeout_s=30)):
        if node["Config"]["Image"] != image.name:
            return "runs another node image"
        if not node["State"]["Running"]:
            return "has stopped nodes"
        if _moment(node["State"]["StartedAt"]) - _moment(node["Created"]) > _FIRST_START_S:
            return "has nodes that were started again"
    marker = _marker(kubeconfig)
    if not marker.exists() or marker.read_text() != _ids(nodes):
        return "was not created to its end"
    return ""


def _marker(kubeconfig: Path) -> Path:
    """The file that lists the containers of a cluster whose creation came to its end."""
    return kubeconfig.with_name(f"{kubeconfig.name}.created")


def _ids(nodes: Sequence[str]) -> str:
    inspect = ["docker", "inspect", "--format", "{{.Id}}", *nodes]
    return "\n".join(sorted(run_command(inspect, timeout_s=30).split()))


def _moment(text: str) -> float:
    """Seconds since the epoch of a time as Docker writes it, with nine digits after the point."""
    return datetime.fromisoformat(text).timestamp()
