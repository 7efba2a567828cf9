"""Small parts of the fake API server: statuses, merge patches, selectors."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

Object = dict[str, Any]
Selector = Callable[[Object], bool]
Key = tuple[str, str]
"""Namespace and name."""


def status(code: int, message: str, **headers: str) -> web.Response:
    """A ``v1.Status`` failure."""
    return web.json_response(status_of(code, message), status=code, headers=headers)


def too_large(version: int, current: int) -> Object:
    """The ``v1.Status`` for a resource version that the server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return status_of(504, message) | {"reason": "Timeout", "details": {"causes": [cause]}}


def status_of(code: int, message: str) -> Object:
    """The body of a failure."""
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}


def key_of(item: Object) -> Key:
    """Namespace and name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def key_in(request: web.Request) -> Key:
    """Namespace and name in the path of a request."""
    return request.match_info.get("namespace", ""), request.match_info["name"]


def selector_of(request: web.Request) -> Selector:
    """Which objects the path and the selectors of a list or watch select."""
    namespace = request.match_info.get("namespace")
    text = request.query.get("fieldSelector", "")
    terms = [term.partition("=") for term in text.split(",") if term]
    labels = [t.partition("=") for t in request.query.get("labelSelector", "").split(",") if t]
    return lambda item: (
        (namespace is None or item["metadata"].get("namespace") == namespace)
        and all(_field(item, field) == value for field, _, value in terms)
        and all(item["metadata"].get("labels", {}).get(key) == value for key, _, value in labels)
    )


def _field(item: Any, path: str) -> Any:
    for part in path.split("."):
        item = item.get(part, {})
    return item or ""


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


async def send_event(response: web.StreamResponse, kind: str, item: Object) -> None:
    """Write one line of a watch."""
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
