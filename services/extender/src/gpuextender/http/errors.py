"""Errors of the framework in the form of the read API: ``{"error": sentence}``."""

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gpukube.server.direct import JSON


class ErrorView(msgspec.Struct):
    """What is wrong, in a sentence."""

    error: str


def add_errors(app: FastAPI) -> None:
    """Answer unknown paths, methods that a path does not have, and wrong parameters."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        detail = error.detail if error.status_code != 405 else f"{request.method} is not allowed"
        return _answer(f"{request.url.path}: {detail}", error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        faults = (f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return _answer("; ".join(faults), 400)


def _answer(sentence: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(ErrorView(sentence))
    return Response(body, status_code=status, headers=headers, media_type=JSON)
