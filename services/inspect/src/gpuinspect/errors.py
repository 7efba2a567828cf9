"""Failures of a command, with messages for the person at the terminal.

::

    InspectError            printed as ``error: ...``; the command ends with exit code 1
    ├── SnapshotError       the file is no snapshot
    ├── MissingObjectError  the cluster has no such node or pod
    ├── PrometheusError     Prometheus did not answer, or it is none
    ├── ControlPlaneError   this node's kube-scheduler cannot be set up so
    ├── FlagError           a flag of serve cannot be read; the command line is wrong
    ├── RefusedError        a request to serve contradicts itself, or the name is taken
    └── HelmError           there is no Helm, or it failed

What the API server refuses, or does not answer, is one of :mod:`gpukube.errors`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from gpukube.errors import ConfigError, KubeError, UnreachableError

SHOWN: Final = 3
_CUTOFF: Final = 0.75


class InspectError(Exception):
    """The command failed; the text has the reason and the next step."""


class SnapshotError(InspectError):
    """The file cannot be read, or is not what ``kubectl get ... -o json`` prints."""


class MissingObjectError(InspectError):
    """The cluster, or the snapshot, has no such object."""


class PrometheusError(InspectError):
    """Prometheus did not answer, or what answers is no Prometheus."""


class ControlPlaneError(InspectError):
    """The kube-scheduler of this node cannot be set up so, or did not start so."""


class FlagError(InspectError):
    """The text of a flag is not of its form; names the flag and the form."""


class RefusedError(InspectError):
    """The request cannot be fulfilled; the message has the change to make."""


class HelmError(InspectError):
    """Helm is not there or did not do it; carries its own words."""


FAILURES: Final = (InspectError, KubeError, ConfigError)
"""What ends a command with a sentence and exit code 1."""


def sentence(error: Exception) -> str:
    """The message of an error for a terminal or the dashboard."""
    missing = isinstance(error, UnreachableError)
    return f"the API server does not respond: {error}" if missing else str(error)


def similar_names(name: str, names: Iterable[str]) -> str:
    """``; near: a, b``, or nothing where no name is similar."""
    found = get_close_matches(name, sorted(set(names)), n=SHOWN, cutoff=_CUTOFF)
    return f"; near: {', '.join(found)}" if found else ""
