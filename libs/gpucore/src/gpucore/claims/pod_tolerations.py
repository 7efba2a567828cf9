"""Tolerations of a pod that concern GPUs: those that name the taint of an unhealthy GPU.

A toleration of every taint is meant for nodes, and gives a pod no unhealthy GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpucore.claims.share_template import MAX_SECONDS, Tolerance
from gpucore.wire.claim.claim_specs import DeviceToleration
from gpucore.wire.claim.devices import NO_EXECUTE, NO_SCHEDULE, UNHEALTHY


class _Toleration(msgspec.Struct, rename="camel"):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None

    def tolerates(self, effect: str) -> bool:
        """It names the taint of an unhealthy GPU and tolerates it with this effect."""
        operator, value = self.operator or "Equal", self.value or ""
        found = DeviceToleration(self.key or "", operator, value, self.effect or "")
        return self.key == UNHEALTHY and found.tolerates(UNHEALTHY, "true", effect)


def gpu_tolerations(spec: Mapping[str, Any]) -> tuple[Tolerance, ...]:
    """Tolerations of an unhealthy GPU in the decoded ``spec`` of a pod.

    Raises:
        msgspec.ValidationError: they are no tolerations.
    """
    found = msgspec.convert(spec.get("tolerations") or [], list[_Toleration])
    return tuple(_by_effect(found))


def _by_effect(tolerations: Sequence[_Toleration]) -> Iterator[Tolerance]:
    """One for each effect, with the shortest time, which counts for Kubernetes too."""
    for effect in (NO_EXECUTE, NO_SCHEDULE):
        matching = [each for each in tolerations if each.tolerates(effect)]
        times = [t for each in matching if (t := each.toleration_seconds) is not None]
        if matching:
            yield Tolerance(effect, min(max(min(times), 0), MAX_SECONDS) if times else None)
