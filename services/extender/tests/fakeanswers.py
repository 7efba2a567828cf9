"""Small parts of the fake API server: keys, namespaces, merge patches, answers."""

import json
from typing import Any

from aiohttp import web

Object = dict[str, Any]


def status(code: int, message: str, **headers: str) -> web.Response:
    """A ``v1.Status`` failure."""
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    return web.json_response(body, status=code, headers=headers)


def key(item: Object) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def path_key(request: web.Request) -> str:
    return f"{request.match_info.get('namespace', '')}/{request.match_info['name']}"


def within(item: Object, request: web.Request) -> bool:
    namespace = request.match_info.get("namespace")
    return namespace is None or item["metadata"].get("namespace") == namespace


def merged(item: Object, patch: Object) -> Object:
    found = dict(item)
    for name, value in patch.items():
        if isinstance(value, dict):
            found[name] = merged(found.get(name) or {}, value)
        elif value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


async def line(response: web.StreamResponse, event: Object) -> None:
    await response.write(json.dumps(event).encode() + b"\n")
