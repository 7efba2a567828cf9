"""The document of the pods that usually come, by which the fragmentation policy compares nodes."""

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpucore.workload.pod_mix import PodKind, PodMix


class MixKindDoc(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One kind of pods, and its part of the mix from 0 to 1.

    GPU memory and compute are those on each GPU, without both the GPUs are exclusive; without
    models any GPU model will do.
    """

    part: float
    gpus: int = 0
    mem_units: int = 0
    core_percent: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()


class MixDoc(Document, frozen=True):
    """The kinds of pods that usually come, most frequent first, and how many pods were counted.

    Where the mix is not ``learned`` from these pods, a fixed guess is used.
    """

    learned: bool
    pods: int
    kinds: tuple[MixKindDoc, ...] = ()


def mix_document(mix: PodMix | None, pods: int) -> MixDoc:
    """The document of a mix; ``None`` while it is not known.

    Args:
        pods: number of pods that are counted.
    """
    if mix is None:
        return MixDoc(API_VERSION, "PodMix", learned=False, pods=pods)
    total = sum(mix.kinds.values())
    ordered = sorted(mix.kinds.items(), key=lambda item: (-item[1], item[0]))
    return MixDoc(
        API_VERSION,
        "PodMix",
        learned=True,
        pods=pods,
        kinds=tuple(_kind(kind, weight / total) for kind, weight in ordered),
    )


def _kind(kind: PodKind, part: float) -> MixKindDoc:
    return MixKindDoc(
        part=round(part, 4),
        gpus=kind.gpus,
        mem_units=kind.mem,
        core_percent=kind.core,
        cpu_milli=kind.cpu_milli,
        memory_mib=kind.memory_mib,
        models=kind.models,
    )
