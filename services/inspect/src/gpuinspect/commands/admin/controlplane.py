"""``gpushare install-scheduler`` and ``uninstall-scheduler``: kubeadm's own kube-scheduler.

For a chart in mode ``extender``. To be run as root on every control-plane node, one after the
other; without ``--apply`` they only show what they would change.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.commands.options.amounts import seconds_option
from gpuinspect.commands.options.reading import Reader, connecting, fail, note
from gpuinspect.controlplane import plan as plans
from gpuinspect.controlplane.cluster import offered, wait_running
from gpuinspect.controlplane.files import Files, carry_out
from gpuinspect.controlplane.manifest import read
from gpuinspect.controlplane.plan import ChangePlan, SchedulerFiles
from gpuinspect.errors import FAILURES
from gpukube.blocking import BlockingClient

Apply = Annotated[
    bool, typer.Option("--apply", help="apply the change; without this flag it is only shown")
]
Root = Annotated[
    Path, typer.Option(help="root directory of the node's file system", metavar="FOLDER")
]
Node = Annotated[
    str | None, typer.Option(help="name of this node; default: its host name", metavar="NAME")
]
Wait = Annotated[
    float,
    seconds_option("seconds to wait for kube-scheduler before the change is rolled back", least=1),
]


SHOWN: Final = "nothing was changed; run the command with --apply to apply it"


class _Node:
    """The node that the command is for: its files, and the API server about it."""

    def __init__(
        self, files: Files, kube: BlockingClient, name: str, *, wait_seconds: float
    ) -> None:
        self.files = files
        self.kube = kube
        self._name = name
        self._wait_seconds = wait_seconds

    def finish(self, found: SchedulerFiles, plan: ChangePlan, *, apply: bool) -> None:
        """Show the plan, and carry it out where that is wanted."""
        if not plan.changes:
            self._tidy(plan, apply=apply)
            return
        sys.stdout.write(plan.diff())
        if not apply:
            note(SHOWN)
            return
        note("waiting for kube-scheduler")
        before = read(found.manifest).ours
        carry_out(plan, self.files, self._running, before=before)
        note("done")

    def _tidy(self, plan: ChangePlan, *, apply: bool) -> None:
        """Remove files that the manifest no longer names, which kubeadm upgrade writes anew."""
        obsolete = self.files.obsolete(keep=plan.config)
        for path in obsolete:
            sys.stdout.write(f"remove {path}\n")
        if obsolete and not apply:
            note(SHOWN)
        elif obsolete:
            self.files.tidy(keep=plan.config)
            note("done")
        else:
            note("nothing to do")

    def _running(self, config: str) -> None:
        wait_running(self.kube, self._name, config, seconds=self._wait_seconds)


@connecting
def install_scheduler(
    reader: Reader,
    *,
    apply: Apply = False,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="namespace of the chart")
    ] = "gpushare",
    root: Root = Path("/"),
    node: Node = None,
    wait: Wait = 180.0,
) -> None:
    """Configure this control-plane node's kube-scheduler to call the extender."""
    with _here(reader.source, root, node, wait) as here:
        found = here.files.found()
        plan = plans.install(found, offered(here.kube, namespace))
        here.finish(found, plan, apply=apply)


@connecting
def uninstall_scheduler(
    reader: Reader,
    *,
    apply: Apply = False,
    root: Root = Path("/"),
    node: Node = None,
    wait: Wait = 180.0,
) -> None:
    """Restore the original manifest of this control-plane node's kube-scheduler, byte for byte."""
    with _here(reader.source, root, node, wait) as here:
        found = here.files.found()
        here.finish(found, plans.uninstall(found), apply=apply)


@contextmanager
def _here(
    source: ClusterSource, root: Path, node: str | None, wait_seconds: float
) -> Iterator[_Node]:
    """Kubeadm's own kubeconfig is the default, as for other tools on such a node."""
    try:
        files = Files(root)
        if source.kubeconfig is None and source.context is None:
            source = msgspec.structs.replace(source, kubeconfig=files.admin())
        kube = source.connect()
        yield _Node(files, kube, node or files.hostname(), wait_seconds=wait_seconds)
    except FAILURES as error:
        fail(error)
