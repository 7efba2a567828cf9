"""``gpushare mix``: the pods that usually come, by which the fragmentation policy places pods."""

import sys
import time

from gpucore.explain.mix_documents import mix_document
from gpuinspect.cluster.arrivals import cluster_arrivals
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.mix import learned_mix
from gpuinspect.cluster.saved_mix import saved_mix
from gpuinspect.cluster.schedulers import SCHEDULER_CONFIGS
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, note, reading
from gpuinspect.layout.mix import mix as table
from gpuinspect.queries.claims import DEVICE_CLASSES, claim_templates


@reading
def mix(reader: Reader, *, output: Output = Format.TABLE, no_headers: NoHeaders = False) -> None:
    """List the kinds of pods by which the fragmentation policy places pods, most frequent first.

    They are learned from the pods of the cluster and from those that the extender keeps in its
    ConfigMap (extender.mixHistory), where your credentials may read that. GET /api/v1/mix of the
    extender has what it uses.
    """
    claims = (DEVICE_CLASSES, claim_templates(""))
    snapshot = reader.source.read(*COUNTED, *claims, SCHEDULER_CONFIGS)
    ledger = ledger_of(snapshot, reader.names)
    arrivals = cluster_arrivals(snapshot, ledger.names)
    saved = saved_mix(snapshot, time.time())
    learned = learned_mix(arrivals, candidates(snapshot, ledger), saved)
    found = mix_document(learned.mix, len(learned.history))
    if output.is_document:
        emit(found, output)
    elif output is Format.NAME:
        names_only("mix", ["learned" if found.learned else "guess"])
    elif found.learned:
        sys.stdout.write(table(found, headers=not no_headers))
    else:
        note(
            f"the cluster has too few pods with GPUs to learn from ({found.pods}):"
            " the policy uses a fixed guess"
        )
