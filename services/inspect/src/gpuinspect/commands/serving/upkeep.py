"""The flags of ``gpushare serve SERVER`` for how pods are watched, replaced and reached.

As in :mod:`gpuinspect.commands.serving.flags`, :func:`upkeep` is never called by name. Probes are
spelled as arena spells them, action and options apart.
"""

from typing import Annotated, Any

import typer

from gpuinspect.serving.elsewhere import ISTIO
from gpuinspect.serving.errors import RefusedError
from gpuinspect.serving.probetexts import ACTIONS, probe

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
