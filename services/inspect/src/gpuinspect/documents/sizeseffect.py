"""JSON and YAML of ``gpushare recommend --whatif``; versions as of :mod:`.inspect`."""

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.queries.repacked import HOURS_A_MONTH, SizesEffect


class SizesEffectDoc(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare recommend --whatif -o json``.

    ``gpusInUse`` is now, ``gpusSameSizes`` and ``gpusRecommended`` after all pods were placed anew.
    ``fitting`` are the waiting pods that fit with the recommended sizes. ``peaksTogether`` is
    ``null``: the histories have amounts without times. ``cost`` is that of the freed GPUs in a
    month of ``hoursPerMonth`` hours.
    """

    api_version: str
    kind: str
    gpus: int
    gpus_in_use: int
    gpus_same_sizes: int
    gpus_recommended: int
    gpus_freed: int
    pods_resized: int
    pods_waiting: int
    fitting_now: int
    fitting_same_sizes: int
    fitting: list[str]
    unplaced: list[str]
    gpus_overcommitted: int
    peaks_together: list[str] | None
    price: float
    hours_per_month: int
    cost: float
    notes: list[str]


def sizes_effect_doc(effect: SizesEffect, *, price: float, notes: list[str]) -> SizesEffectDoc:
    """The document of the effect of the recommended sizes."""
    return SizesEffectDoc(
        api_version=API_VERSION,
        kind="SizesEffect",
        gpus=effect.gpus,
        gpus_in_use=effect.in_use,
        gpus_same_sizes=effect.same_sizes,
        gpus_recommended=effect.recommended_sizes,
        gpus_freed=effect.freed,
        pods_resized=effect.resized,
        pods_waiting=effect.waiting,
        fitting_now=effect.fitting_now,
        fitting_same_sizes=effect.fitting_same,
        fitting=list(effect.fitting),
        unplaced=list(effect.unplaced),
        gpus_overcommitted=effect.overcommitted,
        peaks_together=None,
        price=price,
        hours_per_month=HOURS_A_MONTH,
        cost=effect.monthly(price),
        notes=notes,
    )
