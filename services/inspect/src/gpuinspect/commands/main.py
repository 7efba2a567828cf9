"""The ``gpushare`` command and its doors under the originals' names.

Sub commands are imported when they are called: ``--help`` and a mistyped flag answer at once,
although the Kubernetes client takes half a second to import. Exit codes: 0 done; 1 it failed, or
its answer is no (the sentence is on stderr); 2 the command line is wrong.
"""

import os
import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command as command_of


class Lazy(NamedTuple):
    """A sub command that is not imported yet.

    Attributes:
        target: ``module:function`` or ``module:app`` below :mod:`gpuinspect.commands`.
    """

    target: str
    help: str


DISTRIBUTIONS: Final = ("gpushare-cli", "gpushare-inspect")
"""What has this command in it: the wheel of a release, or a member of the repository."""
COMMANDS: Final = {
    "inspect": Lazy(
        "inspect:inspect", "allocated GPU memory of every GPU (kubectl inspect gpushare)"
    ),
    "gpu": Lazy("gpu:gpu", "exclusive GPUs and how they are connected (kubectl inspect gpu)"),
    "top": Lazy("top:app", "GPUs in use of every node, shares as fractions (arena top node)"),
    "watch": Lazy("watch:watch", "the table of inspect, refreshed in place"),
    "dashboard": Lazy("admin.dashboard:dashboard", "the dashboard: a web page, live and read-only"),
    "explain": Lazy("explain:app", "why a pod or workload is pending, or why it has its GPUs"),
    "pending": Lazy("pending:pending", "all pods that wait for GPUs, with reason and age"),
    "usage": Lazy("usage:usage", "GPU memory allocated, used and pending, in groups by --by"),
    "recommend": Lazy(
        "recommend:recommend", "the size that shares should have, from the memory they used"
    ),
    "idle": Lazy("idle:idle", "pods that hold GPU memory and have used none for some time"),
    "cost": Lazy("admin.cost:cost", "GPU-hours of each namespace and their cost"),
    "whatif": Lazy("whatif:whatif", "where new pods would be placed"),
    "mix": Lazy("mix:mix", "the pods that usually come, for the policy fragmentation"),
    "convert": Lazy("convert:convert", "manifests with shares as manifests with ResourceClaims"),
    "defrag": Lazy(
        "admin.defrag:defrag", "the fewest moves or evictions that make room for a larger request"
    ),
    "node-template": Lazy(
        "admin.node_template:node_template",
        "the template of a node group for an autoscaler that grows it from zero",
    ),
    "doctor": Lazy("admin.doctor:doctor", "check the installation; every finding has a remedy"),
    "verify": Lazy(
        "admin.verify:verify", "proof on the GPUs of this cluster that shares are what they promise"
    ),
    "serve": Lazy("serving.serve:app", "a model server on a share of a GPU (arena serve)"),
    "snapshot": Lazy(
        "admin.snapshot:snapshot", "save the cluster's state to a file for --snapshot"
    ),
    "topology": Lazy("topology:app", "how GPUs are connected, and which sets are best"),
    "replay": Lazy("replay:replay", "replay a trace of pods and measure unallocated GPUs"),
    "install-scheduler": Lazy(
        "admin.controlplane:install_scheduler",
        "configure kubeadm's kube-scheduler to call the extender",
    ),
    "uninstall-scheduler": Lazy(
        "admin.controlplane:uninstall_scheduler", "restore kubeadm's kube-scheduler"
    ),
    "hold-nvidia-plugin": Lazy(
        "admin.nvidia_plugin:hold_nvidia_plugin", "exclude NVIDIA's device plugin from shared nodes"
    ),
    "release-nvidia-plugin": Lazy(
        "admin.nvidia_plugin:release_nvidia_plugin", "restore NVIDIA's device plugin"
    ),
    "completion": Lazy("options.completion:completion", "the completion script for a shell"),
    "version": Lazy("main:version", "the version of this command"),
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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word; a mistyped one ends with the names that are near."""
        names: dict[str, Any] = dict.fromkeys(COMMANDS)
        self.commands = names  # only read for the names
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Commands by the table, with their help, and options."""
        from typer._click.shell_completion import CompletionItem  # noqa: PLC0415 - of TAB only

        found = [
            CompletionItem(name, help=lazy.help)
            for name, lazy in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *super(TyperGroup, self).shell_complete(ctx, incomplete)]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the range belongs to the answer to what is no number."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.replace("a valid int range", _range_of(error))
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as above
        """Write the list for ``--help`` from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


def _range_of(error: typer.BadParameter) -> str:
    """A description of the whole numbers that an option accepts."""
    kind: Any = error.param.type if error.param else None
    lowest, highest = getattr(kind, "min", None), getattr(kind, "max", None)
    if highest is None:
        return f"a whole number of at least {lowest}"
    return f"a whole number from {lowest} to {highest}"


@cache
def _built(lazy: Lazy, name: str) -> Any:
    module, attribute = lazy.target.split(":")
    found = getattr(import_module(f"gpuinspect.commands.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        door = typer.Typer(**PLAIN)
        door.command(name)(found)
        found = door
    command = command_of(found)
    command.name = name
    from gpuinspect.commands.options.absent import with_reasons  # noqa: PLC0415 - no list needs it
    from gpuinspect.commands.options.examples import with_examples  # noqa: PLC0415 - as above
    from gpuinspect.commands.options.shorthand import with_equals  # noqa: PLC0415 - as above

    return with_equals(with_examples(with_reasons(command, name), name))


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, **PLAIN)


def own_version() -> str:
    """The version of this command."""
    from importlib.metadata import distributions  # noqa: PLC0415 - a third of the start

    return next(each for name in DISTRIBUTIONS for each in distributions(name=name)).version


def version() -> None:
    """Print the version of this command."""
    print(f"gpushare {own_version()}")


def _print_version(requested: bool) -> None:  # noqa: FBT001 - the signature is typer's
    if requested:
        version()
        raise typer.Exit


@app.callback()
def gpushare(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="show the version of this command and exit",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """GPU shares on Kubernetes: who uses which GPU, why a pod is pending, what would help.

    \b
    Examples:
      gpushare inspect            # allocated GPU memory of every GPU
      gpushare pending -A         # all pods that wait for GPUs
      gpushare explain pod web-0  # why a pod waits, or why it has its GPU
      gpushare doctor             # what is wrong with the installation
    """  # noqa: D301 - the escape keeps the lines of the examples apart


def main() -> None:
    """The console script ``gpushare``."""
    if "_GPUSHARE_COMPLETE" in os.environ:
        import_module("gpuinspect.commands.options.completion").register()
    _run(app, "gpushare")


def _run(command: Any, name: str) -> None:
    """Run a command under the name that was typed."""
    from gpuinspect.terminal.stdout import written  # noqa: PLC0415 - only a process of its own needs it

    with written():
        command(prog_name=name)


def from_one_file() -> None:
    """The entry of the single file, which may have the name of any of the scripts."""
    _SCRIPTS.get(sys.argv[0].rpartition("/")[2], main)()


def inspect_gpushare() -> None:
    """The console script ``kubectl-inspect-gpushare``, found by kubectl as ``inspect gpushare``."""
    _run(_built(COMMANDS["inspect"], "inspect"), "kubectl inspect gpushare")


def inspect_gpushare_v2() -> None:
    """The console script ``kubectl-inspect-gpushare-v2``, another name of the originals."""
    _run(_built(COMMANDS["inspect"], "inspect"), "kubectl-inspect-gpushare-v2")


def inspect_gpu() -> None:
    """The console script ``kubectl-inspect-gpu``, found by kubectl as ``inspect gpu``."""
    _run(_built(COMMANDS["gpu"], "gpu"), "kubectl inspect gpu")


def complete_inspect_gpushare() -> None:
    """The console script ``kubectl_complete-inspect-gpushare``, which kubectl runs on TAB."""
    completion = import_module("gpuinspect.commands.options.completion")
    completion.print_for_kubectl(_built(COMMANDS["inspect"], "inspect"))


def complete_inspect_gpu() -> None:
    """The console script ``kubectl_complete-inspect-gpu``, likewise."""
    completion = import_module("gpuinspect.commands.options.completion")
    completion.print_for_kubectl(_built(COMMANDS["gpu"], "gpu"))


_SCRIPTS: Final = {
    "kubectl-inspect-gpushare": inspect_gpushare,
    "kubectl-inspect-gpushare-v2": inspect_gpushare_v2,
    "kubectl-inspect-gpu": inspect_gpu,
    "kubectl_complete-inspect-gpushare": complete_inspect_gpushare,
    "kubectl_complete-inspect-gpu": complete_inspect_gpu,
}
