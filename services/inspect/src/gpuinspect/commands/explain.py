"""``gpushare explain pod`` and ``explain deploy/NAME``: why pods wait, or why they have their GPUs.

A word with a slash is taken as kubectl takes it: ``explain deploy/web`` is ``explain deployment
web``. With the rights of one namespace the scheduler's own words are the reason.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpucore.explain.documents import pod_explanation
from gpucore.steps import complete
from gpuinspect.cluster.collect import ListRequest
from gpuinspect.cluster.schedulers import placing_gaps, placing_lists
from gpuinspect.cluster.scoped import REASONS, read
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, Output, emit, names_only
from gpuinspect.commands.options.kinds import KINDS, kind_of
from gpuinspect.commands.options.namespaces import Namespace, chosen
from gpuinspect.commands.options.policies import PolicyName, check_policy
from gpuinspect.commands.options.reading import Reader, fail, note_all, reading
from gpuinspect.documents.workload import workload_explanation
from gpuinspect.layout.explanation import explanation
from gpuinspect.layout.explanation import workload as blocks
from gpuinspect.queries.explain import find
from gpuinspect.queries.scheduling_status import SchedulingStatuses
from gpuinspect.queries.workloads import Alike, WorkloadRef, alike, refused_pods, uids_of
from gpuinspect.terminal import output as terminal


class KindGroup(TyperGroup):
    """Takes ``deploy/NAME`` and the short names of kinds as kubectl does."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a kind: of its name, a short name, or ``KIND/NAME``."""
        return super().get_command(ctx, kind_of(cmd_name.partition("/")[0]) or cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word, with what follows its slash as the first argument."""
        word, slash, name = args[0].partition("/")
        whole = not slash or not kind_of(word)
        alone = len(args) == 1 or args[1].startswith("-")
        if whole and alone and not self.get_command(ctx, word):
            kinds = ", ".join(self.commands)
            typed = f"{ctx.command_path} pod {args[0]}"
            ctx.fail(f"{args[0]!r} is none of {kinds}; for a pod, type {typed}")
        return super().resolve_command(ctx, args if whole else [word, name, *args[1:]])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The kinds; after ``KIND/`` the names of that kind."""
        word, slash, name = incomplete.partition("/")
        kind = kind_of(word) if slash else ""
        if not kind:
            return super().shell_complete(ctx, incomplete)
        command = self.get_command(ctx, kind)
        with command.make_context(kind, [], ctx, resilient_parsing=True) as inner:
            (argument,) = (each for each in command.params if each.param_type_name == "argument")
            found = argument.shell_complete(inner, name)
        for item in found:
            item.value = f"{word}/{item.value}"
        return found


app = typer.Typer(cls=KindGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def explain() -> None:
    """Explain why pods are pending: explain pod NAME, explain deploy/NAME."""


@app.command("pod")
@reading
def pod(
    reader: Reader,
    name: Annotated[
        str,
        typer.Argument(help="the pod, with or without namespace", autocompletion=answers.pods),
    ],
    *,
    namespace: Namespace = "",
    policy: PolicyName = "",
    output: Output = Format.TABLE,
) -> None:
    """Explain why a pod is pending, or why it has its GPU, and suggest what would help."""
    where, name = _named(reader, namespace, name, "pod")
    check_policy(policy)
    lists = (*placing_lists(where), _events(where, name))
    snapshot = read(reader.source, where, *lists)
    target = find(snapshot, namespace=where, name=name)
    statuses = SchedulingStatuses(snapshot, reader.names, policy=policy)
    found = statuses.explanation_of(target)
    if output.is_document:
        emit(complete(pod_explanation(found, statuses.cluster)), output)
    elif output is Format.NAME:
        names_only("node", found.fits)
    else:
        wide = output is Format.WIDE
        sys.stdout.write(explanation(found, wide=wide, width=terminal.width()))
    note_all(placing_gaps(snapshot, REASONS))


def _workload(kind: str) -> Callable[..., None]:
    @reading
    def workload(
        reader: Reader,
        name: Annotated[
            str,
            typer.Argument(
                help=f"the {KINDS[kind]}, with or without namespace",
                autocompletion=answers.of_kind(kind),
            ),
        ],
        *,
        namespace: Namespace = "",
        policy: PolicyName = "",
        output: Output = Format.TABLE,
    ) -> None:
        where, name = _named(reader, namespace, name, kind)
        check_policy(policy)
        ref = WorkloadRef(KINDS[kind], where, name)
        lists = (*placing_lists(where), _failed_creations(where))
        snapshot = read(reader.source, where, *lists)
        uids = uids_of(snapshot, ref)
        statuses = SchedulingStatuses(snapshot, reader.names, policy=policy)
        groups = alike(statuses.in_namespace(where, only=uids))
        _show(
            ref, groups, refused_pods(snapshot, ref), list(placing_gaps(snapshot, REASONS)), output
        )

    workload.__doc__ = f"Explain the pods of a {KINDS[kind]} in groups by reason."
    return workload


def _show(
    ref: WorkloadRef, groups: Sequence[Alike], refused: str, unread: Sequence[str], output: Format
) -> None:
    if output.is_document:
        emit(workload_explanation(ref, groups, not_created=refused, gaps=unread), output)
        return
    if output is Format.NAME:
        names_only("pod", (each.pod.name for group in groups for each in group.pods))
    else:
        wide, width = output is Format.WIDE, terminal.width()
        sys.stdout.write(blocks(ref, groups, not_created=refused, wide=wide, width=width))
    note_all(unread)


for _kind in KINDS:
    app.command(_kind)(_workload(_kind))


def _named(reader: Reader, namespace: str, name: str, kind: str) -> tuple[str, str]:
    word, slash, rest = name.partition("/")
    name = rest if slash and kind_of(word) == kind else name  # KIND/NAME, as -o name prints it
    namespace, slash, name = name.rpartition("/") if "/" in name else (namespace, "", name)
    if not name or "/" in namespace or (slash and not namespace):
        fail(f"a {kind} is NAME or NAMESPACE/NAME")
    return chosen(reader.source, namespace), name


def _events(namespace: str, name: str) -> ListRequest:
    return ListRequest(
        "Event",
        f"/api/v1/namespaces/{namespace}/events",
        {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"},
    )


def _failed_creations(namespace: str) -> ListRequest:
    path = f"/api/v1/namespaces/{namespace}/events"
    return ListRequest("Event", path, {"fieldSelector": "reason=FailedCreate"})
