"""Converts the arguments of the original plugin's DaemonSet.

Go's flag package takes one dash or two, and ``=true`` for switches. What the original's flags set
either has the same name here, or is always on, or concerns ways that this plugin does not need.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

OURS: Final = ("memory-unit", "mps", "mps-pipe")
"""Flags of the original that mean the same here."""

SWITCHES: Final = frozenset(
    {"mps", "health-check", "query-kubelet", "logtostderr", "alsologtostderr"}
)
"""Flags that take no value of their own argument."""

IGNORED: Final = {
    "health-check": "health is always checked",
    "query-kubelet": "pods come from the API server, devices from kubelet",
    "kubelet-address": "the plugin uses kubelet's own socket",
    "kubelet-port": "the plugin uses kubelet's own socket",
    "client-cert": "the plugin uses kubelet's own socket",
    "client-key": "the plugin uses kubelet's own socket",
    "token": "the plugin uses kubelet's own socket",
    "timeout": "the plugin uses kubelet's own socket",
    "logtostderr": "logs always go to stderr",
    "alsologtostderr": "logs always go to stderr",
    "stderrthreshold": "use --log-level",
    "v": "use --log-level",
    "vmodule": "use --log-level",
    "log_dir": "logs always go to stderr",
    "log_backtrace_at": "use --log-level",
}
"""Flags of the original, and of its logger, that change nothing here; and why."""


class Arguments(NamedTuple):
    """Arguments for our settings, and the names of flags that were left out."""

    ours: list[str]
    ignored: list[str]


def translated(arguments: Sequence[str]) -> Arguments:
    """Leave out what the original's flags cannot change, and spell the others as ours are."""
    found = Arguments([], [])
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or (name not in OURS and name not in IGNORED):
            found.ours.append(argument)
        elif name in IGNORED:
            found.ignored.append(name)
            _skip_value(name, equals, rest)
        elif name in SWITCHES:
            on = value.lower() not in {"false", "f", "0"}
            found.ours.append(f"--{name}" if on else f"--no-{name}")
        else:
            found.ours.append(f"--{name}={value}" if equals else f"--{name}")
    return found


def _skip_value(name: str, equals: str, rest: Iterator[str]) -> None:
    """The value of a flag without ``=`` is the next argument, but for switches."""
    if not equals and name not in SWITCHES:
        next(rest, None)
