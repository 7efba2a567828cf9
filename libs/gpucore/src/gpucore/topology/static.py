"""GPU sets that an operator has configured for a node type, and how they are used.

The configuration is that of the 2019 extender: ``{"<node type>": {"<size>": [[ids], ...]}}``. A
set of the wanted size that is wholly free is taken; else the first GPUs of the smallest larger set
that is wholly free. The 2019 code then named the first free GPUs and failed all the same; here
nothing fits, in words. NVIDIA's own sets (:data:`STATIC_SETS`) are never broken up.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from gpucore.model.links import TopologyError

_MAX_INDEX: Final = 64

_Index = Annotated[int, msgspec.Meta(ge=0, lt=_MAX_INDEX)]


class StaticSets(msgspec.Struct, frozen=True):
    """The sets of one node type.

    Attributes:
        sets: by size, first choice first.
        divide: part of a larger set may be taken.
    """

    sets: Mapping[int, tuple[tuple[int, ...], ...]]
    divide: bool = True

    def choose(
        self, free: Collection[int], count: int, require: Collection[int] = ()
    ) -> tuple[int, ...] | None:
        """``count`` GPUs of ``free`` with all of ``require``; ``None`` where no set has them."""
        for size in sorted(size for size in self.sets if size >= count):
            if size > count and not self.divide:
                break
            for gpus in self.sets[size]:
                if set(gpus) <= set(free) and set(require) <= set(gpus):
                    return _part(gpus, count, require)
        return None


def _part(gpus: Sequence[int], count: int, require: Collection[int]) -> tuple[int, ...]:
    others = [gpu for gpu in gpus if gpu not in require]
    chosen = {*require, *others[: count - len(set(require))]}
    return tuple(gpu for gpu in gpus if gpu in chosen)


def decode_static(raw: bytes | str) -> dict[str, StaticSets]:
    """Read the configuration of the 2019 extender.

    Raises:
        TopologyError: it is not of that form, or a set does not have as many GPUs as its size.
    """
    try:
        types = msgspec.json.decode(raw, type=dict[str, dict[str, list[list[_Index]]]])
        return {name: StaticSets(_sizes(name, sets)) for name, sets in types.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TopologyError(f"invalid configuration of static sets: {error}") from error


def _sizes(
    name: str, sets: Mapping[str, list[list[int]]]
) -> dict[int, tuple[tuple[int, ...], ...]]:
    for size, groups in sets.items():
        for group in groups:
            if size != str(len(set(group))) or len(group) != len(set(group)):
                raise TopologyError(f"node type {name!r}: {group} is no set of {size} GPUs")
    return {int(size): tuple(map(tuple, groups)) for size, groups in sets.items() if groups}


def _runs(gpus: int, *sizes: int) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Sets of neighbours: for each size the GPUs in runs of that many."""
    return {
        size: tuple(tuple(range(at, at + size)) for at in range(0, gpus, size)) for size in sizes
    }


def _dgx1(*pairs: tuple[int, int]) -> StaticSets:
    return StaticSets({**_runs(8, 1, 4, 8), 2: pairs}, divide=False)


STATIC_SETS: Final[Mapping[str, StaticSets]] = {
    "dgx1-pascal": _dgx1((0, 2), (1, 3), (4, 6), (5, 7)),
    "dgx1-volta": _dgx1((0, 3), (1, 2), (4, 7), (5, 6)),
    "dgx2": StaticSets(_runs(16, 1, 2, 4, 8, 16), divide=False),
}
"""The sets that NVIDIA recommends for its machines, by node type."""
