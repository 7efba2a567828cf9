"""The texts of arena's flags of probes as probes of Kubernetes.

An action with its options, such as ``httpGet`` with ``path: /healthz`` and ``port: 8000``, and
options
of the probe itself, such as ``periodSeconds: 3``. That their names are the API's is checked by the
API, not here.
"""

import shlex
from collections.abc import Iterable
from typing import Any, Final

from gpuinspect.serving.errors import FlagError

COMMAND: Final = "command="
"""Begins the one option of ``exec``; the rest is a command line."""
ACTIONS: Final = {"httpGet": "port", "tcpSocket": "port", "grpc": "port", "exec": "command"}
"""Actions of a probe, and the option that each requires."""


def probe(
    kind: str, action: str, action_options: Iterable[str], options: Iterable[str]
) -> dict[str, Any]:
    """One probe; empty where no flag of it is given.

    Args:
        kind: liveness, readiness or startup, as in the flags' names.

    Raises:
        FlagError: an unknown action, one without what it needs, or options without an action.
    """
    given = _options(f"--{kind}-probe-action-option", action_options)
    rest = _options(f"--{kind}-probe-option", options)
    flag = f"--{kind}-probe-action"
    if not action:
        if given or rest:
            raise FlagError(f"{flag} is missing: its options need an action")
        return {}
    needed = ACTIONS.get(action)
    if needed is None:
        raise FlagError(f"{flag} is '{action}': write {', '.join(ACTIONS)}")
    if needed not in given:
        form = COMMAND if needed == "command" else f"{needed}: "
        raise FlagError(f"{flag} is {action}: give {flag}-option '{form}...'")
    return {action: given, **rest}


def _options(flag: str, texts: Iterable[str]) -> dict[str, Any]:
    return dict(_option(flag, text) for text in texts)


def _option(flag: str, text: str) -> tuple[str, Any]:
    if text.startswith(COMMAND):
        try:
            return "command", shlex.split(text.removeprefix(COMMAND))
        except ValueError as error:
            raise FlagError(f"{flag} is '{text}': {error}") from error
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not name or not value:
        raise FlagError(f"{flag} is '{text}': write 'NAME: VALUE' or {COMMAND}COMMAND")
    return name, int(value) if value.isdecimal() else value
