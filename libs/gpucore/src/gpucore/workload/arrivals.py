"""Pods that came: as they are counted, how much one counts by its age, and as they are saved.

The saved history is a document of bounded size, which outlives the process. It has the pods that
were created before a time, as weights by namespace, kind and selector: the weights of equal age
halve together, so their sum is all that is needed of them. A process that reads it counts only pods
from that time on, so none counts twice.

What is read comes from an object that others may have changed: nothing beyond the ranges below is
taken over.
"""

from collections.abc import Callable, Iterable
from math import exp2
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gpucore.model.constraints import NodeSelectorTerm
from gpucore.steps import Steps
from gpucore.units import MemoryUnit
from gpucore.wire.errors import WireError
from gpucore.workload.pod_mix import PodKind

HALF_LIFE_SECONDS: Final = 3 * 24 * 3600
HISTORY_KEY: Final = "history.json"
"""Of the ConfigMap that keeps the document."""
MOST_PARTS: Final = 1000
MOST_BYTES: Final = 100_000
MOST_PART_BYTES: Final = 2000
"""A selector that is larger, or makes a part larger, does not count: its pods are for any node."""
MOST_PODS: Final = 20_000
LATEST_SECONDS: Final = 3600.0
"""A time that is further in the future is that of no clock."""
DIGITS: Final = 6
VERSION: Final = 1
HEAD_BYTES: Final = 200
PARTS_A_STEP: Final = 50
_Name = Annotated[str, Meta(max_length=253)]
_Amount = Annotated[int, Meta(ge=0, le=2**53)]
_Weight = Annotated[float, Meta(ge=0, le=2**40)]
_encoded: Final = msgspec.json.Encoder().encode


class NodeLabels(msgspec.Struct, frozen=True):
    """Labels that a pod requires of its node."""

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None


ANY_NODE: Final = NodeLabels()
Models = Callable[[NodeLabels], tuple[str, ...]]
"""The GPU models of the nodes that a selector allows; empty for all."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A pod that came.

    Attributes:
        kind: its requests, without GPU models.
        selector: from which the GPU models follow.
        created: Unix seconds.
        claimed_mib: memory in MiB that it requests of each GPU by claims, in place of ``kind.mem``.
    """

    namespace: str
    kind: PodKind
    selector: NodeLabels = ANY_NODE
    created: float = 0.0
    claimed_mib: int = 0

    def kind_on(self, models: tuple[str, ...], unit: MemoryUnit) -> PodKind:
        """Its kind in a cluster of this unit, on nodes of these GPU models."""
        mem = unit.units_for(self.claimed_mib) or self.kind.mem
        if not models and mem == self.kind.mem:
            return self.kind
        return msgspec.structs.replace(self.kind, mem=mem, models=models)


def small_selector(selector: NodeLabels) -> NodeLabels:
    """The selector, or that of any node in place of a large one."""
    return selector if len(_encoded(selector)) <= MOST_PART_BYTES else ANY_NODE


def aged(seconds: float) -> float:
    """The weight of a pod that is this much older than one of the weight 1."""
    return exp2(-seconds / HALF_LIFE_SECONDS)


class SavedPart(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Pods of one namespace, kind and selector, and how much they count together."""

    namespace: _Name
    weight: _Weight
    gpus: _Amount = 1
    mem: _Amount = 0
    core: _Amount = 0
    cpu_milli: _Amount = 0
    memory_mib: _Amount = 0
    claimed_mib: _Amount = 0
    selector: NodeLabels = ANY_NODE

    def arrival(self) -> Arrival:
        """One of these pods."""
        kind = PodKind(self.gpus, self.mem, self.core, self.cpu_milli, self.memory_mib)
        return Arrival(self.namespace, kind, self.selector, claimed_mib=self.claimed_mib)


class SavedHistory(msgspec.Struct, frozen=True, rename="camel"):
    """Pods that were created before a time.

    Attributes:
        until: Unix seconds; a pod of this age has the weight 1.
    """

    until: Annotated[float, Meta(ge=0, le=2**40)]
    pods: Annotated[int, Meta(ge=0, le=MOST_PODS)]
    parts: Annotated[tuple[SavedPart, ...], Meta(max_length=MOST_PARTS)]
    version: Literal[1]


EMPTY: Final = SavedHistory(until=0.0, pods=0, parts=(), version=VERSION)


def saved_part(arrival: Arrival, weight: float) -> SavedPart:
    """Pods like this one."""
    kind = arrival.kind
    return SavedPart(
        namespace=arrival.namespace,
        weight=weight,
        gpus=kind.gpus,
        mem=kind.mem,
        core=kind.core,
        cpu_milli=kind.cpu_milli,
        memory_mib=kind.memory_mib,
        claimed_mib=arrival.claimed_mib,
        selector=arrival.selector,
    )


def bounded(parts: Iterable[SavedPart]) -> Steps[tuple[SavedPart, ...]]:
    """The parts that count most, as many as the document may have, in steps."""
    kept: list[SavedPart] = []
    left = MOST_BYTES - HEAD_BYTES
    for number, part in enumerate(sorted(parts, key=lambda part: -part.weight)):
        if number % PARTS_A_STEP == 0:
            yield
        small = _small(part)
        if small is None:
            continue
        left -= len(_encoded(small)) + 1
        if left < 0 or len(kept) == MOST_PARTS:
            break
        kept.append(small)
    return tuple(kept)


def _small(part: SavedPart) -> SavedPart | None:
    """The part as it is saved; ``None`` where it has an amount that no document may have."""
    rounded = msgspec.structs.replace(part, weight=float(f"{part.weight:.{DIGITS}g}"))
    if not rounded.weight:
        return None
    if len(_encoded(rounded)) > MOST_PART_BYTES:
        rounded = msgspec.structs.replace(rounded, selector=ANY_NODE)
    try:
        return _PART.decode(_encoded(rounded))
    except msgspec.MsgspecError:
        return None


def encode_history(history: SavedHistory) -> str:
    """The text of the document."""
    return _encoded(history).decode()


def decode_history(text: str, now: float) -> SavedHistory:
    """Read a document.

    Args:
        now: Unix seconds.

    Raises:
        WireError: it is none of :func:`encode_history`, or of a time that has not come.
    """
    if len(text) > MOST_BYTES:
        raise WireError(f"the history of pods has more than {MOST_BYTES} characters")
    try:
        found = _HISTORY.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"no history of pods: {str(error)[:200]}") from error
    if found.until > now + LATEST_SECONDS:
        raise WireError("the history of pods is of a time that has not come")
    return found


_PART: Final = msgspec.json.Decoder(SavedPart)
_HISTORY: Final = msgspec.json.Decoder(SavedHistory)
