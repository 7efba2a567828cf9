"""The answer of ``gpushare recommend --whatif`` for people."""

from collections.abc import Iterator
from typing import Final

from gpuinspect.queries.repacked import HOURS_A_MONTH, SizesEffect
from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import one_line

NAMED: Final = 5
"""Pods that a note names; the others are counted."""
PEAKS_UNKNOWN: Final = (
    "whose peaks come together is not known: the histories have amounts without times"
)


def sizes_effect(effect: SizesEffect, *, price: float, headers: bool = True) -> str:
    """A line for each way to place the pods, then the gain."""
    heads = ["PODS PLACED\tGPUS IN USE\tWAITING PODS THAT FIT\n"] if headers else []
    rows = [
        _row("as they are", effect, effect.in_use, effect.fitting_now),
        _row("anew, same sizes", effect, effect.same_sizes, effect.fitting_same),
        _row("anew, recommended", effect, effect.recommended_sizes, len(effect.fitting)),
    ]
    return align("".join([*heads, *rows])) + ("\n" + _gain(effect, price) if headers else "")


def _row(how: str, effect: SizesEffect, gpus: int, fitting: int) -> str:
    return f"{how}\t{gpus} of {effect.gpus}\t{fitting} of {effect.waiting}\n"


def notes(effect: SizesEffect) -> Iterator[str]:
    """What the figures do not show."""
    yield "a figure, not a plan: pods are not moved, and another order may need more GPUs"
    if effect.unplaced:
        yield (
            f"{_count(len(effect.unplaced), 'running pod')} found no place when all were placed"
            f" anew, so the GPUs of {_named(effect.unplaced)} are missing in a figure"
        )
    if effect.overcommitted:
        yield (
            f"on {_count(effect.overcommitted, 'GPU')} the burst limits together are more than"
            " the memory: pods whose peaks come together run out of it"
        )
    yield PEAKS_UNKNOWN


def _gain(effect: SizesEffect, price: float) -> str:
    freed = f"GPUs freed: {effect.freed}, with {_count(effect.resized, 'pod')} resized"
    cost = f"; {effect.monthly(price):.2f} in a month of {HOURS_A_MONTH} hours" if price else ""
    more = len(effect.fitting) - effect.fitting_now
    return f"{freed}{cost}\nWaiting pods that would fit in addition: {more}\n"


def _named(names: tuple[str, ...]) -> str:
    rest = len(names) - NAMED
    shown = ", ".join(one_line(name) for name in names[:NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
