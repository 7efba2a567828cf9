"""Paths and schemas of the OpenAPI document, made from the types that are sent and received.

Bodies are read as bytes, which is what makes calls of the scheduler quick, so FastAPI cannot see
their shape; :func:`complete` adds it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

import msgspec
from fastapi import FastAPI

from gpukube.server.direct import JSON

SHARE_PREFIX: Final = "/gpushare-scheduler"
PREFIXES: Final = (SHARE_PREFIX, "/gputopology-scheduler", "/gpu-scheduler-extender")
_REF: Final = "#/components/schemas/{name}"
Document = dict[str, Any]


def answers(kinds: Mapping[int, Any]) -> dict[int | str, Document]:
    """``responses`` of a route: a schema for each status."""
    return {
        status: {"description": _summary(kind), "content": {JSON: {"schema": _schema(kind)}}}
        for status, kind in kinds.items()
    }


def request_body(kind: Any, example: Document) -> Document:
    """``openapi_extra`` of a route that reads ``kind``."""
    content = {JSON: {"schema": _schema(kind), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def complete(app: FastAPI, kinds: Iterable[Any], error: type) -> None:
    """Put the schemas of ``kinds``, to which routes refer, into the document of ``app``.

    Args:
        error: type of the answer to wrong parameters, in place of the framework's 422.
    """
    original = app.openapi
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)

    def openapi() -> Document:
        document = original()
        for operation in (each for path in document["paths"].values() for each in path.values()):
            if operation["responses"].pop("422", None):
                operation["responses"].setdefault("400", answers({400: error})[400])
        document.setdefault("components", {}).setdefault("schemas", {}).update(components)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _schema(kind: Any) -> Document:
    """A reference to ``kind``, or the schema itself where it has no name."""
    [schema], _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _summary(kind: Any) -> str:
    """The first line that describes a type; of a list, that of its items."""
    [described] = get_args(kind) or [kind]
    return (described.__doc__ or "An answer.").splitlines()[0]
