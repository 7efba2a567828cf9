"""What ``gpushare recommend`` prints, in each of its formats."""

import sys
from collections.abc import Mapping, Sequence

import msgspec

from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import Recommendation
from gpucore.wire.names import Names
from gpuinspect.cluster.usage_histories import ReadHistories
from gpuinspect.commands.options.formats import AnyFormat, emit, names_only
from gpuinspect.commands.options.reading import note_all
from gpuinspect.documents.recommend import recommendation_list, sizes_effect_doc
from gpuinspect.layout import recommend as effect_layout
from gpuinspect.layout.patches import patches
from gpuinspect.layout.recommend import recommend as table
from gpuinspect.queries.claim_sizes import ClaimSize, MeasuredWorkload, object_names
from gpuinspect.queries.repacked import SizesEffect


class RecommendFormat(AnyFormat):
    """Value of ``-o``: the formats of all commands, and one for kubectl."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    PATCH = "patch"


class Shown(msgspec.Struct, frozen=True):
    """What is printed.

    Attributes:
        unit: in words.
        gaps: what could not be read, or is not the same on all nodes.
        claims: of workloads whose memory is claimed, for patches.
    """

    found: Sequence[Recommendation]
    unit: str
    rules: SizingRules
    gaps: list[str]
    histories: ReadHistories
    claims: Mapping[MeasuredWorkload, ClaimSize | str] = {}


def print_effect(
    effect: SizesEffect, price: float, output: RecommendFormat, gaps: list[str], *, headers: bool
) -> None:
    """Print what the sizes would free; notes go to stderr, or into the document."""
    notes = [*effect_layout.notes(effect), *gaps]
    if output.is_document:
        emit(sizes_effect_doc(effect, price=price, notes=notes), output)
        return
    if output is RecommendFormat.NAME:
        names_only("pod", (name.partition("/")[2] for name in effect.fitting))
        return
    sys.stdout.write(effect_layout.sizes_effect(effect, price=price, headers=headers))
    note_all(notes)


def print_sizes(
    shown: Shown, output: RecommendFormat, names: Names, *, everywhere: bool, headers: bool
) -> None:
    """Print the recommendations in a format; gaps go to stderr, or into the document."""
    if output.is_document:
        document = recommendation_list(
            shown.found, shown.histories, unit=shown.unit, rules=shown.rules, gaps=shown.gaps
        )
        emit(document, output)
        return
    if output is RecommendFormat.NAME:
        for kind, name in ((each.key.kind.lower(), each.key.name) for each in shown.found):
            names_only(kind, [name] if object_names(kind, name) else [])
    elif output is RecommendFormat.PATCH:
        sys.stdout.writelines(f"{line}\n" for line in patches(shown.found, names, shown.claims))
    elif shown.found:
        wide = output is RecommendFormat.WIDE
        text = table(shown.found, shown.unit, namespaces=everywhere, wide=wide, headers=headers)
        sys.stdout.write(text)
    note_all(shown.gaps)
