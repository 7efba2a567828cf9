"""The flags of ``gpushare serve SERVER`` for how pods are watched, replaced and reached.

As in :mod:`gpuinspect.commands.serving.flags`, :func:`upkeep` is never called by name. Probes are
spelled as arena spells them, action and options apart.
"""

import shlex
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from gpuinspect.errors import FlagError, RefusedError
from gpuinspect.serving.elsewhere import ISTIO

COMMAND: Final = "command="
"""Begins the one option of ``exec``; the rest is a command line."""
ACTIONS: Final = {"httpGet": "port", "tcpSocket": "port", "grpc": "port", "exec": "command"}
"""Actions of a probe, and the option that each requires."""
Texts = list[str]
_KINDS = " or ".join(ACTIONS)
Liveness = Annotated[str, typer.Option("--liveness-probe-action", help=f"liveness probe: {_KINDS}")]
LivenessHow = Annotated[
    Texts,
    typer.Option(
        "--liveness-probe-action-option",
        help="option of the probe's action: 'path: /healthz', 'port: 8000' or 'command=COMMAND'",
    ),
]
LivenessWhen = Annotated[
    Texts, typer.Option("--liveness-probe-option", help="option of the probe: 'periodSeconds: 3'")
]
Readiness = Annotated[
    str, typer.Option("--readiness-probe-action", help="readiness probe, as above")
]
ReadinessHow = Annotated[
    Texts,
    typer.Option("--readiness-probe-action-option", help="option of the probe's action, as above"),
]
ReadinessWhen = Annotated[
    Texts, typer.Option("--readiness-probe-option", help="option of the probe, as above")
]
Startup = Annotated[str, typer.Option("--startup-probe-action", help="startup probe, as above")]
StartupHow = Annotated[
    Texts,
    typer.Option("--startup-probe-action-option", help="option of the probe's action, as above"),
]
StartupWhen = Annotated[
    Texts, typer.Option("--startup-probe-option", help="option of the probe, as above")
]
MaxSurge = Annotated[
    str,
    typer.Option(help="pods beyond --replicas during an update, number or percentage; 0 for none"),
]
MaxUnavailable = Annotated[
    str, typer.Option(help="pods that may be missing during an update, number or percentage")
]
Istio = Annotated[
    bool,
    typer.Option(
        "--enable-istio",
        "--enableIstio",
        "--expose-service",
        "--exposeService",
        hidden=True,
        help="arena's; refused",
    ),
]


def upkeep(
    *,
    liveness_probe_action: Liveness = "",
    liveness_probe_action_option: LivenessHow = [],  # noqa: B006 - typer copies it
    liveness_probe_option: LivenessWhen = [],  # noqa: B006 - as above
    readiness_probe_action: Readiness = "",
    readiness_probe_action_option: ReadinessHow = [],  # noqa: B006 - as above
    readiness_probe_option: ReadinessWhen = [],  # noqa: B006 - as above
    startup_probe_action: Startup = "",
    startup_probe_action_option: StartupHow = [],  # noqa: B006 - as above
    startup_probe_option: StartupWhen = [],  # noqa: B006 - as above
    max_surge: MaxSurge = "",
    max_unavailable: MaxUnavailable = "",
    enable_istio: Istio = False,
) -> dict[str, Any]:
    """Values of the chart for probes and updates; none for flags that are not given.

    Raises:
        FlagError: a text is not of its form.
        RefusedError: what only a service mesh could do.
    """
    if enable_istio:
        raise RefusedError(ISTIO)
    requested = {
        "liveness": (liveness_probe_action, liveness_probe_action_option, liveness_probe_option),
        "readiness": (
            readiness_probe_action,
            readiness_probe_action_option,
            readiness_probe_option,
        ),
        "startup": (startup_probe_action, startup_probe_action_option, startup_probe_option),
    }
    probes = {kind: found for kind, words in requested.items() if (found := probe(kind, *words))}
    limits = {"maxSurge": max_surge, "maxUnavailable": max_unavailable}
    strategy = {name: amount for name, amount in limits.items() if amount}
    given = {"probes": probes, "strategy": strategy}
    return {name: value for name, value in given.items() if value}


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
