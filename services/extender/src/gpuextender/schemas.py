"""OpenAPI 3.1 of every route: schemas from the very types that are sent, and examples to try.

Bodies are read as bytes, which is what makes the verbs quick, so FastAPI cannot see their shape;
it is said here instead and joined into its document by :func:`complete`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI

_REF: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"
Document = dict[str, Any]

_POD: Final[Document] = {
    "metadata": {"name": "worker-0", "namespace": "default", "uid": "8b9c"},
    "spec": {
        "containers": [
            {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "8"}}},
        ]
    },
}
ARGS: Final[Document] = {"Pod": _POD, "Nodes": None, "NodeNames": ["node-1", "node-2"]}
BINDING: Final[Document] = {
    "PodName": "worker-0",
    "PodNamespace": "default",
    "PodUID": "8b9c",
    "Node": "node-1",
}
PREEMPTION: Final[Document] = {
    "Pod": _POD,
    "NodeNameToVictims": None,
    "NodeNameToMetaVictims": {"node-1": {"Pods": [{"UID": "77aa"}], "NumPDBViolations": 0}},
}
WHATIF: Final[Document] = {
    "pods": [{"name": "worker", "mem": 8, "replicas": 3}, {"name": "trainer", "gpus": 4}]
}


def answers(kinds: Mapping[int, Any]) -> dict[int | str, Document]:
    """``responses`` of a route: a schema for each status."""
    return {
        status: {"description": _summary(kind), "content": {JSON: {"schema": _schema(kind)}}}
        for status, kind in kinds.items()
    }


def body(kind: Any, example: Document) -> Document:
    """``openapi_extra`` of a route that reads ``kind``."""
    content = {JSON: {"schema": _schema(kind), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def complete(app: FastAPI, kinds: Iterable[Any]) -> None:
    """Put the schemas of ``kinds``, to which routes refer, into the document of ``app``."""
    original = app.openapi
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)

    def openapi() -> Document:
        document = original()
        document.setdefault("components", {}).setdefault("schemas", {}).update(components)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _schema(kind: Any) -> Document:
    """A reference to ``kind``, or the schema itself where it has no name."""
    [schema], _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _summary(kind: Any) -> str:
    return (getattr(kind, "__doc__", "") or "An answer.").splitlines()[0]
