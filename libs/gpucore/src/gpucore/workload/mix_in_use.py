"""The mix that an extender uses, as a document of bounded size.

Commands that place pods as the extender does read it. Weights and the order of kinds are those of
the extender, so both compute the same numbers. Without kinds the extender uses the fixed guess.

What is read comes from an object that others may have changed: nothing beyond the ranges below is
taken over.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gpucore.wire.errors import WireError
from gpucore.workload.pod_mix import MOST_KINDS, PodKind, PodMix

KEY: Final = "mix.json"
"""Of the ConfigMap that keeps the document, beside the history."""
MOST_BYTES: Final = 100_000
MOST_AMOUNT: Final = 2**53
"""Larger amounts fit no node, and are published as this one."""
VERSION: Final = 1

_Amount = Annotated[int, Meta(ge=0, le=MOST_AMOUNT)]
_Model = Annotated[str, Meta(max_length=1000)]


class KindInUse(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One kind of pods and its weight; the fields are those of :class:`PodKind`."""

    weight: Annotated[float, Meta(ge=0, le=2**40)]
    gpus: _Amount = 1
    mem: _Amount = 0
    core: _Amount = 0
    cpu_milli: _Amount = 0
    memory_mib: _Amount = 0
    models: tuple[_Model, ...] = ()

    def kind(self) -> PodKind:
        """The kind."""
        return PodKind(self.gpus, self.mem, self.core, self.cpu_milli, self.memory_mib, self.models)


class MixInUse(msgspec.Struct, frozen=True, rename="camel"):
    """The mix in use.

    Attributes:
        time: of the publication, in Unix seconds.
        kinds: in the order of the mix; empty for the guess.
    """

    time: Annotated[float, Meta(ge=0, le=2**40)]
    kinds: Annotated[tuple[KindInUse, ...], Meta(max_length=MOST_KINDS)]
    version: Literal[1]

    def mix(self) -> PodMix | None:
        """The mix; ``None`` for the guess."""
        weights: dict[PodKind, float] = {}
        for each in self.kinds:
            kind = each.kind()
            weights[kind] = weights.get(kind, 0.0) + each.weight
        return PodMix(weights) if weights else None


def encode_mix(mix: PodMix | None, time: float) -> str:
    """The text of the document.

    Args:
        mix: in use; ``None`` for the guess.
        time: Unix seconds.

    Raises:
        WireError: the document would be too large.
    """
    weights = {} if mix is None else mix.kinds
    kinds = tuple(_published(kind, weight) for kind, weight in weights.items())
    raw = msgspec.json.encode(MixInUse(time, kinds, VERSION))
    if len(raw) > MOST_BYTES:
        raise WireError(f"the mix of pods has {len(raw)} bytes, the most is {MOST_BYTES}")
    return raw.decode()


def _published(kind: PodKind, weight: float) -> KindInUse:
    return KindInUse(
        weight=weight,
        gpus=min(kind.gpus, MOST_AMOUNT),
        mem=min(kind.mem, MOST_AMOUNT),
        core=min(kind.core, MOST_AMOUNT),
        cpu_milli=min(kind.cpu_milli, MOST_AMOUNT),
        memory_mib=min(kind.memory_mib, MOST_AMOUNT),
        models=kind.models,
    )


def decode_mix(text: str) -> MixInUse:
    """Read a document.

    Raises:
        WireError: it is none of :func:`encode_mix`.
    """
    if len(text) > MOST_BYTES:
        raise WireError(f"the mix of pods has more than {MOST_BYTES} characters")
    try:
        return _MIX.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"no mix of pods: {str(error)[:200]}") from error


_MIX: Final = msgspec.json.Decoder(MixInUse)
