"""The JSON schema of every document that commands print and the dashboard serves.

``services/inspect/schema/gpushare-v1.json`` is written from here (``python -m
gpuinspect.documents.schema``) and a test fails when the two differ, so that no field changes
unnoticed.
"""

import sys
from typing import Any, Final

import msgspec

from gpucore.explain.documents import PodExplanation
from gpucore.explain.mix_documents import MixDoc
from gpucore.explain.whatif_documents import WhatIfDoc
from gpucore.wire.documents import API_VERSION
from gpuinspect.documents.cost import CostList
from gpuinspect.documents.defrag import DefragPlan, EvictionPlanDoc
from gpuinspect.documents.doctor import Examination
from gpuinspect.documents.gpumap import GpuMapDoc
from gpuinspect.documents.gpunode import GpuNodeList
from gpuinspect.documents.idle import IdleEvictionDoc, IdleShareList
from gpuinspect.documents.inspect import NodeShareList
from gpuinspect.documents.nodetemplate import NodeTemplateDoc
from gpuinspect.documents.pending import PendingPodList
from gpuinspect.documents.recommend import RecommendationList, SizesEffectDoc, WorkloadSizeList
from gpuinspect.documents.top import NodeGpuList
from gpuinspect.documents.usage import UsageList
from gpuinspect.documents.verify import VerifyReport
from gpuinspect.documents.workload import WorkloadExplanation
from gpuinspect.serving.documents import ServingList

DOCUMENTS: Final = {
    "NodeShareList": NodeShareList,
    "NodeGpuList": NodeGpuList,
    "GpuNodeList": GpuNodeList,
    "PodExplanation": PodExplanation,
    "WorkloadExplanation": WorkloadExplanation,
    "PendingPodList": PendingPodList,
    "UsageList": UsageList,
    "RecommendationList": RecommendationList,
    "IdleShareList": IdleShareList,
    "IdleEviction": IdleEvictionDoc,
    "SizesEffect": SizesEffectDoc,
    "WhatIf": WhatIfDoc,
    "PodMix": MixDoc,
    "DefragPlan": DefragPlan,
    "EvictionPlan": EvictionPlanDoc,
    "Examination": Examination,
    "ServingList": ServingList,
    "CostList": CostList,
    "NodeTemplate": NodeTemplateDoc,
    "VerifyReport": VerifyReport,
    "GpuMap": GpuMapDoc,
    "WorkloadSizeList": WorkloadSizeList,
}
"""Documents by their ``kind``."""
_ATTRIBUTES: Final = "\n\n    Attributes:"
"""Begins the part of a docstring that has the names of Python, not those of the document."""


def schema() -> dict[str, Any]:
    """One schema: a document is one of the kinds."""
    kinds, components = msgspec.json.schema_components(
        DOCUMENTS.values(), ref_template="#/$defs/{name}"
    )
    for each in components.values():
        if "description" in each:
            each["description"] = each["description"].partition(_ATTRIBUTES)[0]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Documents of the gpushare command, {API_VERSION}",
        "oneOf": list(kinds),
        "$defs": {name: components[name] for name in sorted(components)},
    }


def text() -> str:
    """The file."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
