"""The JSON schema of every document that ``-o json`` and ``-o yaml`` print.

``services/inspect/schema/gpushare-v1.json`` is written from here (``python -m gpuinspect.schema``)
and a test fails when the two differ, so that no field changes unnoticed.
"""

import sys
from typing import Any, Final

import msgspec

from gpuinspect.cli.defrag import DefragPlan
from gpuinspect.cli.gpu import GpuNodeList
from gpuinspect.doctordocuments import Examination
from gpuinspect.documents import API_VERSION, NodeShareList
from gpuinspect.explaindocuments import PodExplanation
from gpuinspect.serving.documents import ServingList
from gpuinspect.topdocuments import NodeGpuList
from gpuinspect.whatifdocuments import WhatIfDoc

DOCUMENTS: Final = {
    "NodeShareList": NodeShareList,
    "NodeGpuList": NodeGpuList,
    "GpuNodeList": GpuNodeList,
    "PodExplanation": PodExplanation,
    "WhatIf": WhatIfDoc,
    "DefragPlan": DefragPlan,
    "Examination": Examination,
    "ServingList": ServingList,
}
"""Documents by their ``kind``."""


def schema() -> dict[str, Any]:
    """One schema: a document is one of the kinds."""
    kinds, components = msgspec.json.schema_components(
        DOCUMENTS.values(), ref_template="#/$defs/{name}"
    )
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
