"""``gpushare mix``: the pods that usually come, by which the fragmentation policy places pods."""

import sys
import time

from gpucore.explain.mix_documents import MixKindDoc, mix_document
from gpucore.workload.history import FEWEST_PODS
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.mix import UNPUBLISHED, cluster_arrivals, learned_mix, saved_mix
from gpuinspect.cluster.schedulers import SCHEDULER_CONFIGS
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, note, reading
from gpuinspect.terminal.output import table

_HEADS = ("PART", "GPUS", "MEMORY", "COMPUTE", "CPU", "HOST MEMORY", "MODELS")


@reading
def mix(reader: Reader, *, output: Output = Format.TABLE, no_headers: NoHeaders = False) -> None:
    """List the kinds of pods by which the fragmentation policy places pods, most frequent first.

    They are those that the extender uses, by its ConfigMap (extender.mixHistory). Where your
    credentials may not read that, they are learned from the pods of the cluster.
    """
    claims = (DEVICE_CLASSES, claim_templates(""))
    snapshot = reader.source.read(*COUNTED, *claims, SCHEDULER_CONFIGS)
    ledger = ledger_of(snapshot, reader.names)
    arrivals = cluster_arrivals(snapshot, ledger.names)
    saved = saved_mix(snapshot, time.time())
    learned = learned_mix(arrivals, candidates(snapshot, ledger), saved.history)
    used = learned.mix if saved.published is None else saved.published.mix()
    found = mix_document(used, len(learned.history))
    if output.is_document:
        emit(found, output)
    elif output is Format.NAME:
        names_only("mix", ["learned" if found.learned else "guess"])
    elif found.learned:
        sys.stdout.write(table(_HEADS, map(_row, found.kinds), headers=not no_headers))
    elif found.pods < FEWEST_PODS:
        note(
            f"the cluster has too few pods with GPUs to learn from ({found.pods}):"
            " the policy uses a fixed guess"
        )
    else:
        note("the extender has not learned from the pods yet: the policy uses a fixed guess")
    if saved.unpublished:
        note(f"note: {UNPUBLISHED}")


def _row(kind: MixKindDoc) -> tuple[str, ...]:
    """Amounts of a share are those on each of its GPUs."""
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
