"""The table of ``gpushare mix``: one line for each kind of pods, the most frequent first."""

from gpucore.explain.mix_documents import MixDoc, MixKindDoc
from gpuinspect.terminal.tables import align

_HEADS = ("PART", "GPUS", "MEMORY", "COMPUTE", "CPU", "HOST MEMORY", "MODELS")


def mix(found: MixDoc, *, headers: bool = True) -> str:
    """Amounts of a share are those on each of its GPUs."""
    rows: list[tuple[str, ...]] = [_HEADS] if headers else []
    rows += [_row(kind) for kind in found.kinds]
    return align("".join("\t".join(row) + "\n" for row in rows))


def _row(kind: MixKindDoc) -> tuple[str, ...]:
    whole = not (kind.mem_units or kind.core_percent)
    return (
        f"{kind.part:.1%}",
        str(kind.gpus),
        "all" if whole else str(kind.mem_units),
        "all" if whole else f"{kind.core_percent}%",
        f"{kind.cpu_milli}m",
        f"{kind.memory_mib}Mi",
        "|".join(kind.models) or "any",
    )
