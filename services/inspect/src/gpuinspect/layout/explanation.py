"""The answer of ``gpushare explain pod`` for people, in the manner of ``kubectl describe``."""

from collections.abc import Iterator
from typing import Final

from gpucore.explain import CONSTRAINT_CODES
from gpucore.model import Code
from gpuinspect.explaining import Explanation, Group, State, memory_asked
from gpuinspect.layout.wrapping import wrapped
from gpuinspect.tables import align

SHOWN: Final = 3  # names of nodes in a row; the rest are counted
HEAD: Final = len("Scheduler:  ")
"""Where the second column of the head begins."""

_LEAVING: Final = "; terminating, it counts until its containers are gone"
_MEASURED: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.INSUFFICIENT_GPUS,
        Code.PENDING_UNITS,
        Code.TOO_LARGE,
    }
)
"""Reasons that a figure tells; the others are told in words."""


def explanation(found: Explanation, *, wide: bool = False, width: int | None = None) -> str:
    """Blocks with what the pod asks, where it stands, who refuses it and what would help.

    Args:
        found: the explanation.
        wide: name every node instead of counting them.
        width: of the terminal, for sentences; ``None`` does not wrap.
    """
    head = align("".join(_head(found))).splitlines()
    return "".join(
        [
            *(wrapped(line, width, indent=HEAD) for line in head),
            align("".join(_refusals(found, wide=wide))),
            *_sentences(found, width),
        ]
    )


def _head(found: Explanation) -> Iterator[str]:
    pod = found.pod
    yield f"Pod:\t{pod.namespace}/{pod.name}\n"
    yield f"Asks:\t{found.asks or '-'}\n"
    yield f"State:\t{found.state}{_LEAVING if pod.terminating else ''}\n"
    if found.where:
        yield f"Where:\t{found.where}\n"
    for line in found.neighbours:
        yield f"\t{line}\n"
    if found.why:
        yield f"Why:\t{found.why}\n"
    if found.asks:
        yield f"Policy:\t{found.policy}\n"
    yield f"Scheduler:\t{pod.scheduler_name or '-'}, {_seen(found)}\n"
    if not pod.node and found.sightings.last_words:
        yield f"\tit says: {found.sightings.last_words}\n"
    for fault in found.faults:
        yield f"Fault:\t{fault}\n"


def _sentences(found: Explanation, width: int | None) -> Iterator[str]:
    nearest = [group.example for group in found.groups if group.largest]
    if nearest:
        yield "\n"
        yield from (wrapped(f"Nearest: {sentence}", width, indent=9) for sentence in nearest)
    if found.helps:
        yield "\nWhat would help:\n"
        yield from (wrapped(f"  - {sentence}", width, indent=4) for sentence in found.helps)


def _seen(found: Explanation) -> str:
    if found.state is State.ASKS_NOTHING:
        return "not a matter of GPUs"
    if found.pod.node:
        return f"bound it to {found.pod.node}"
    if found.gates:
        return "which leaves pods with scheduling gates alone"
    if found.sightings.scheduler_saw_it:
        return "which has tried to place it"
    if found.sightings.complete:
        return "which has never looked at it: is a scheduler of this name running?"
    return "of which nothing is known here (no events at hand)"


def _refusals(found: Explanation, *, wide: bool) -> Iterator[str]:
    if found.fits:
        yield f"\nIt fits on {nodes(len(found.fits))}: {_names(found.fits, wide=wide)}\n"
    if found.groups:
        count = sum(len(group.nodes) for group in found.groups)
        yield f"\nRefused by {nodes(count)}:\n"
        yield "NODES\tREASON\tFIGURES\tWHICH\n"
        yield from (_group(group, wide=wide) for group in found.groups)


def _group(group: Group, *, wide: bool) -> str:
    return f"{len(group.nodes)}\t{group.code}\t{figures(group)}\t{_names(group.nodes, wide=wide)}\n"


def nodes(count: int) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} node{'' if count == 1 else 's'}"


def figures(group: Group) -> str:
    """``largest free block 6 GiB, asked 8``, or the reason where no figure tells more."""
    if group.code in CONSTRAINT_CODES:
        return group.detail
    if group.code is Code.COMPUTE_TOO_LARGE:
        return f"a GPU has {group.largest} percent, asked {group.asked}"
    if not group.asked or group.code not in _MEASURED:
        return group.reason.partition(":")[0]
    noun = "largest card" if group.code is Code.TOO_LARGE else "largest free block"
    if group.measure == "cards":
        return f"{group.largest} card{'' if group.largest == 1 else 's'} free, asked {group.asked}"
    asked = memory_asked(group.asked).removesuffix(" units")
    return f"{noun} {group.largest} {group.measure}, asked {asked}{group.detail}"


def _names(names: tuple[str, ...], *, wide: bool) -> str:
    shown = names if wide else names[:SHOWN]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
