"""Tolerations as the API server writes them: of pods for nodes, and of claims for devices."""

import msgspec

from gpucore.model.constraints import Toleration


class TolerationObject(msgspec.Struct, gc=False):
    """A toleration without the defaults of the API, which :func:`toleration_of` fills in."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


def toleration_of(found: TolerationObject) -> Toleration:
    """The toleration with the defaults of the API."""
    return Toleration(
        found.key or "", found.operator or "Equal", found.value or "", found.effect or ""
    )
