"""Requests on single objects of the fake API server."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from aiohttp import web

from gpukube.testing.answers import Object, key_in, merged, status
from gpukube.testing.store import Store


class ObjectRequests:
    """Reads and writes of one object.

    Attributes:
        bindings: the Binding objects that were applied.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores
        self.bindings: list[Object] = []

    async def get(self, request: web.Request) -> web.StreamResponse:
        item = self._found(request)
        return web.json_response(item) if item else _not_found(request)

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Create an object in the namespace of the path; a dry run only shows it."""
        item = await request.json()
        namespace = item["metadata"].setdefault(
            "namespace", request.match_info.get("namespace", "")
        )
        store = self._stores[request.match_info["plural"]]
        if (namespace, item["metadata"]["name"]) in store.objects:
            return status(409, "already exists")
        if request.query.get("dryRun"):
            return web.json_response(item, status=201)
        return web.json_response(store.put(item), status=201)

    async def patch(self, request: web.Request) -> web.StreamResponse:
        """Apply a merge patch; a UID and a resource version in it are preconditions."""
        item, patch = self._found(request), await request.json()
        if item is None:
            return _not_found(request)
        metadata = patch.get("metadata", {})
        if conflict := _uid_conflict(metadata, item) or _version_conflict(metadata, item):
            return conflict
        store = self._stores[request.match_info["plural"]]
        changed = merged(item, patch)
        if manager := request.query.get("fieldManager", ""):
            changed["metadata"] |= {"managedFields": [_managed(manager, patch)]}
        return web.json_response(store.put(changed))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        if self._found(request) is None:
            return _not_found(request)
        self._stores[request.match_info["plural"]].delete(*key_in(request))
        return web.json_response({})

    async def bind(self, request: web.Request) -> web.StreamResponse:
        """Apply a Binding: its node and annotations in one write."""
        pod = self._stores["pods"].objects.get(key_in(request))
        if pod is None:
            return status(404, f'pods "{request.match_info["name"]}" not found')
        binding = await request.json()
        metadata = binding["metadata"]
        if conflict := _uid_conflict(metadata, pod):
            return conflict
        if pod["metadata"].get("deletionTimestamp"):
            return status(409, "pod is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            return status(409, f'pod is already assigned to node "{pod["spec"]["nodeName"]}"')
        changed = deepcopy(pod)
        changed["spec"]["nodeName"] = binding["target"]["name"]
        changed["metadata"].setdefault("annotations", {}).update(metadata.get("annotations", {}))
        self.bindings.append(binding)
        self._stores["pods"].put(changed)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _found(self, request: web.Request) -> Object | None:
        return self._stores[request.match_info["plural"]].objects.get(key_in(request))


def _not_found(request: web.Request) -> web.Response:
    return status(404, f"{request.match_info['name']} not found")


def _uid_conflict(metadata: Object, item: Object) -> web.Response | None:
    uid = metadata.get("uid")
    if uid and uid != item["metadata"].get("uid"):
        return status(409, f"Precondition failed: UID in precondition: {uid}")
    return None


def _version_conflict(metadata: Object, item: Object) -> web.Response | None:
    version = metadata.get("resourceVersion")
    if version and version != item["metadata"]["resourceVersion"]:
        return status(409, "the object has been modified")
    return None


def _managed(manager: str, patch: dict[str, Any]) -> dict[str, Any]:
    """The entry of managedFields for the fields of the status that the patch sets."""
    written: dict[str, Any] = {
        f"f:{key}": {} for key, value in patch.get("status", {}).items() if value
    }
    return {"manager": manager, "fieldsV1": {"f:status": written}}
