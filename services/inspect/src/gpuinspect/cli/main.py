"""The ``gpushare`` command and its doors under the originals' names.

Sub commands are imported when they are called: ``--help`` and a mistyped flag answer at once,
although the Kubernetes client takes half a second to import. Exit codes: 0 done; 1 it failed, or
its answer is no (the sentence is on stderr); 2 the command line is wrong.
"""

import os
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command as command_of


class Lazy(NamedTuple):
    """A sub command that is not imported yet.

    Attributes:
        target: ``module:function`` or ``module:app`` below :mod:`gpuinspect.cli`.
    """

    target: str
    help: str


COMMANDS: Final = {
    "inspect": Lazy(
        "inspect:inspect", "GPU memory allocated, card by card (kubectl inspect gpushare)"
    ),
    "gpu": Lazy("gpu:gpu", "whole cards and how they are joined (kubectl inspect gpu)"),
    "top": Lazy("top:app", "cards in use node by node, shares as fractions (arena top node)"),
    "watch": Lazy("watch:watch", "the table of inspect, live and in place"),
    "dashboard": Lazy("dashboard:dashboard", "all of this as a page, live and read-only"),
    "explain": Lazy("explain:app", "why a pod waits, or why it sits where it sits"),
    "whatif": Lazy("whatif:whatif", "where pods would go if they came now"),
    "defrag": Lazy("defrag:defrag", "the fewest pods whose move makes room"),
    "doctor": Lazy("doctor:doctor", "checks of the installation, each with what to do"),
    "serve": Lazy("serve:app", "a model server on a share of a GPU (arena serve)"),
    "snapshot": Lazy("snapshot:snapshot", "a file for --snapshot, to look at a cluster elsewhere"),
    "topology": Lazy("topology:app", "how cards are joined, and which belong together"),
    "replay": Lazy("replay:replay", "what a policy leaves unallocated, by a trace of pods"),
    "install-scheduler": Lazy(
        "controlplane:install_scheduler", "have kubeadm's own kube-scheduler call the extender"
    ),
    "uninstall-scheduler": Lazy(
        "controlplane:uninstall_scheduler", "give kubeadm's kube-scheduler back as it was"
    ),
    "hold-nvidia-plugin": Lazy(
        "nvidiaplugin:hold_nvidia_plugin", "keep NVIDIA's device plugin off shared nodes"
    ),
    "release-nvidia-plugin": Lazy(
        "nvidiaplugin:release_nvidia_plugin", "give NVIDIA's device plugin back as it was"
    ),
    "completion": Lazy("completion:completion", "the completion script for a shell"),
    "version": Lazy("version:version", "the version of this command"),
}
SETTINGS: Final = {"help_option_names": ["-h", "--help"]}
PLAIN: Final[Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "context_settings": SETTINGS,
}


class LazyGroup(TyperGroup):
    """The commands of :data:`COMMANDS`, listed without importing any."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is typer's
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the signature is typer's
        """Import and build one command; ``None`` where there is no such name."""
        lazy = COMMANDS.get(cmd_name)
        return None if lazy is None else _built(lazy, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as above
        """Write the list for ``--help`` from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


def _built(lazy: Lazy, name: str) -> Any:
    module, attribute = lazy.target.split(":")
    found = getattr(import_module(f"gpuinspect.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        door = typer.Typer(**PLAIN)
        door.command(name)(found)
        found = door
    command = command_of(found)
    command.name = name
    return command


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, **PLAIN)


@app.callback()
def gpushare() -> None:
    """GPU shares on Kubernetes: who holds which card, why a pod waits, and what would help."""


def main() -> None:
    """The console script ``gpushare``."""
    if "_GPUSHARE_COMPLETE" in os.environ:
        import_module("gpuinspect.cli.completion").prepare()
    app(prog_name="gpushare")


def inspect_gpushare() -> None:
    """The console script ``kubectl-inspect-gpushare``, found by kubectl as ``inspect gpushare``."""
    _built(COMMANDS["inspect"], "inspect")(prog_name="kubectl inspect gpushare")


def inspect_gpushare_v2() -> None:
    """The console script ``kubectl-inspect-gpushare-v2``, another name of the originals."""
    _built(COMMANDS["inspect"], "inspect")(prog_name="kubectl-inspect-gpushare-v2")


def inspect_gpu() -> None:
    """The console script ``kubectl-inspect-gpu``, found by kubectl as ``inspect gpu``."""
    _built(COMMANDS["gpu"], "gpu")(prog_name="kubectl inspect gpu")
