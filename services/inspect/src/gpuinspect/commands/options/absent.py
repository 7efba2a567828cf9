"""Shared flags that a command lacks, each with the reason; ``--help`` shows them.

Every command has the flags of :data:`SHARED`, with the same meaning, or a reason here.
"""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

PODS: Final = ("--namespace", "--all-namespaces")
NODES: Final = ("--selector",)
TABLE: Final = ("--output", "--no-headers")
CLUSTER: Final = ("--kubeconfig", "--context", "--request-timeout")
OBJECTS: Final = ("--as", "--snapshot", "--resource-domain", "--annotation-prefix")
LETTERS: Final = {
    "--namespace": "-n",
    "--all-namespaces": "-A",
    "--selector": "-l",
    "--output": "-o",
}
SHARED: Final = (*PODS, *NODES, *TABLE, *CLUSTER, *OBJECTS)


class Absent(NamedTuple):
    """Flags that a command lacks, and why."""

    flags: tuple[str, ...]
    reason: str


_ONE_NODE: Final = Absent((*PODS, *NODES), "it is about the one node that is given")
_WHOLE_NODES: Final = Absent(PODS, "it counts whole nodes, whose pods are of every namespace")
_WHOLE_CLUSTER: Final = Absent((*PODS, *NODES), "it is about the whole cluster")
_NO_SNAPSHOT: Final = Absent(("--snapshot",), "a snapshot does not have Deployments and Services")
_NO_OBJECTS: Final = Absent(SHARED, "it reads no cluster and prints no table")
_BY_NAME: Final = ("--all-namespaces", *NODES)
_IN_FILE: Final = (*PODS, *NODES, *CLUSTER, "--as", "--snapshot", "--annotation-prefix")
_OF_ALL_NODES: Final = Absent(
    (*PODS, *NODES, *TABLE, *OBJECTS),
    "it changes NVIDIA's DaemonSets and every labelled node, and prints what it changes",
)

ABSENT: Final[Mapping[str, tuple[Absent, ...]]] = {
    "gpu": (_WHOLE_NODES,),
    "top": (_WHOLE_NODES,),
    "watch": (Absent(TABLE, "it refreshes one table for people; inspect has all formats"),),
    "dashboard": (
        _WHOLE_CLUSTER,
        Absent(TABLE, "it serves pages; usage and inspect have all formats"),
    ),
    "explain": (
        Absent(_BY_NAME, "it is about one object, which every node may refuse"),
        Absent(("--no-headers",), "the text is not one table"),
    ),
    "pending": (Absent(NODES, "most pods that wait are on no node"),),
    "recommend": (Absent(NODES, "it is about workloads, not nodes"),),
    "cost": (Absent((*NODES, *OBJECTS), "its figures are those of Prometheus, by namespace"),),
    "whatif": (
        Absent(PODS, "free GPU memory is for pods of every namespace"),
        Absent(NODES, "the node selector in the manifest limits the nodes"),
    ),
    "mix": (_WHOLE_CLUSTER,),
    "convert": (
        Absent(_IN_FILE, "it reads a manifest, not a cluster"),
        Absent(TABLE, "it prints a manifest"),
    ),
    "defrag": (Absent(PODS, "it moves pods of every namespace; --max-per-namespace limits them"),),
    "node-template": (_ONE_NODE, Absent(("--no-headers",), "the text is not a table")),
    "doctor": (_WHOLE_CLUSTER,),
    "verify": (Absent(("--all-namespaces", *NODES), "--node and --gpu select what is verified"),),
    "serve": (
        Absent(("--all-namespaces",), "a model server is created in one namespace"),
        Absent(
            (*TABLE, "--request-timeout", *OBJECTS),
            "Helm creates the objects; --dry-run prints them",
        ),
    ),
    "serve list": (Absent(NODES, "it is about model servers, not nodes"), _NO_SNAPSHOT),
    "serve get": (
        Absent(_BY_NAME, "it is about one model server"),
        Absent(("--no-headers",), "the text is not one table"),
        _NO_SNAPSHOT,
    ),
    "serve delete": (
        Absent(_BY_NAME, "it deletes one model server"),
        Absent((*TABLE, "--request-timeout", *OBJECTS), "Helm deletes the objects"),
    ),
    "snapshot": (_WHOLE_CLUSTER, Absent(TABLE, "it writes a file for --snapshot")),
    "topology plan": (
        Absent((*_IN_FILE, "--resource-domain"), "it reads a file, not a cluster"),
        Absent(("--no-headers",), "the text is not a table"),
    ),
    "topology show": (_ONE_NODE, Absent(TABLE, "it draws a matrix; gpu has all formats")),
    "replay": (
        _WHOLE_CLUSTER,
        Absent(("--no-headers",), "every line begins with its name"),
    ),
    "install-scheduler": (
        Absent(
            ("--all-namespaces", *NODES, *TABLE, *OBJECTS),
            "it changes files of this node, and prints the difference",
        ),
    ),
    "uninstall-scheduler": (
        Absent(
            (*PODS, *NODES, *TABLE, *OBJECTS),
            "it restores files of this node, and prints the difference",
        ),
    ),
    "hold-nvidia-plugin": (_OF_ALL_NODES,),
    "release-nvidia-plugin": (_OF_ALL_NODES,),
    "completion": (_NO_OBJECTS,),
    "version": (_NO_OBJECTS,),
}
"""By the words of the command; those of a group are for each of its commands without own ones."""


def absent_from(path: str) -> tuple[Absent, ...]:
    """What a command lacks, by its words; nothing for one that lacks none."""
    own = ABSENT.get(path)
    return ABSENT.get(path.partition(" ")[0], ()) if own is None else own


def sentences(path: str) -> Iterator[str]:
    """One sentence a reason, such as ``No -l: it is about the whole cluster.``."""
    for flags, reason in absent_from(path):
        names = ", ".join(LETTERS.get(flag, flag) for flag in flags)
        yield f"No {'flags of other commands' if flags == SHARED else names}: {reason}."


def _wrapped(sentence: str) -> str:
    """Lines of a terminal; flags are not broken at their hyphens."""
    return textwrap.fill(sentence, 76, subsequent_indent="  ", break_on_hyphens=False)


def with_reasons(command: Any, path: str) -> Any:
    """The command, or all commands of a group, with the sentences below the flags in help."""
    for name, each in getattr(command, "commands", {}).items():
        with_reasons(each, f"{path} {name}")
    if not hasattr(command, "commands"):
        lines = [_wrapped(each) for each in sentences(path)]
        reasons = "\b\n" + "\n".join(lines) if lines else ""
        command.epilog = "\n\n".join(part for part in (reasons, command.epilog) if part)
    return command
