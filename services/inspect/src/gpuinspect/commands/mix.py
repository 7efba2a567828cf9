"""``gpushare mix``: the pods that usually come, by which the fragmentation policy places pods."""

import sys

from gpucore.explain.mix_documents import mix_document
from gpuinspect.cluster.arrivals import cluster_arrivals
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.mix import learned_mix
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, note, reading
from gpuinspect.layout.mix import mix as table
from gpuinspect.queries.claims import DEVICE_CLASSES, claim_templates


@reading
def mix(reader: Reader, *, output: Output = Format.TABLE, no_headers: NoHeaders = False) -> None:
    """List the kinds of pods by which the fragmentation policy places pods, most frequent first.

    They are learned from the pods of the cluster; an extender also counts pods that were deleted.
    GET /api/v1/mix of the extender has what it uses.
    """
    snapshot = reader.source.read(*COUNTED, DEVICE_CLASSES, claim_templates(""))
    ledger = ledger_of(snapshot, reader.names)
    arrivals = cluster_arrivals(snapshot, ledger.names)
    learned = learned_mix(arrivals, candidates(snapshot, ledger))
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
