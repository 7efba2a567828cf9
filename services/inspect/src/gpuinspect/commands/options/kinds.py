"""Kinds of workloads on the command line, as kubectl takes them."""

from typing import Final

KINDS: Final = {
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "replicaset": "ReplicaSet",
    "job": "Job",
    "cronjob": "CronJob",
}
"""By name in lower case."""

SHORT: Final = {
    "deploy": "deployment",
    "sts": "statefulset",
    "ds": "daemonset",
    "rs": "replicaset",
    "cj": "cronjob",
    "po": "pod",
}


def node_name(text: str) -> str:
    """The name of a node, also where it is ``node/NAME`` as ``-o name`` prints it."""
    return text.removeprefix("node/")


def namespace_name(text: str) -> str:
    """The name of a namespace, also where it is ``namespace/NAME`` as ``-o name`` prints it."""
    return text.removeprefix("namespace/")


def kind_of(word: str) -> str:
    """The kind that a word of the command line means, in lower case; empty for none."""
    name = word.lower().partition(".")[0]
    for each in (name, name.removesuffix("s")):
        found = SHORT.get(each, each)
        if found in KINDS or found == "pod":
            return found
    return ""
