"""The HTTP face of the fake cluster.

List, watch, merge patch, create and delete, and faults on demand.
"""

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from fakecluster.store import Object, Selector, Store, merged


class FakeApiServer:
    """A cluster of one address. Faults are set by tests as attributes.

    Attributes:
        fail: (method, part of the path) to a status, answered instead of the real answer.
        watch_delay: seconds by which watches lag behind.
        watches_flow: cleared, watches deliver nothing until it is set again.
        calls: how often (method, path without query) was asked.
    """

    def __init__(self) -> None:
        self.stores = {kind: Store() for kind in ("pods", "nodes", "events", "configmaps")}
        self.fail: dict[tuple[str, str], int] = {}
        self.watch_delay = 0.0
        self.watches_flow = asyncio.Event()
        self.watches_flow.set()
        self.calls: Counter[tuple[str, str]] = Counter()
        self._runner: web.AppRunner | None = None
        self._watches: set[asyncio.Task[Any]] = set()
        self.url = ""

    @property
    def pods(self) -> Store:
        return self.stores["pods"]

    @property
    def nodes(self) -> Store:
        return self.stores["nodes"]

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._faults])
        app.router.add_get("/api/v1/{kind}", self._list)
        app.router.add_route("*", "/api/v1/{kind:nodes}/{name}", self._one)
        app.router.add_route("PATCH", "/api/v1/{kind:nodes}/{name}/status", self._one)
        app.router.add_post("/api/v1/namespaces/{namespace}/{kind}", self._create)
        app.router.add_route("*", "/api/v1/namespaces/{namespace}/{kind}/{name}", self._one)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.break_watches()
        assert self._runner is not None
        await self._runner.cleanup()

    def break_watches(self) -> None:
        """Cut every open watch."""
        for task in list(self._watches):
            task.cancel()

    def kubeconfig(self, directory: Path) -> Path:
        """Write a configuration that leads here."""
        cluster = {"name": "fake", "cluster": {"server": self.url}}
        context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
        path = directory / "kubeconfig.json"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [cluster],
                    "contexts": [context],
                    "current-context": "fake",
                    "users": [{"name": "fake", "user": {"token": "fake"}}],
                }
            )
        )
        return path

    @web.middleware
    async def _faults(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls[request.method, request.path] += 1
        for (method, part), status in self.fail.items():
            if method == request.method and part in request.path:
                return _status(status, "injected")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _list(self, request: web.Request) -> web.StreamResponse:
        store = self.stores[request.match_info["kind"]]
        selected = _selector(request.query.get("fieldSelector", ""))
        if request.query.get("watch") == "true":
            return await self._watch(request, store, selected)
        items = [item for item in store.objects.values() if selected(item)]
        return web.json_response(
            {"metadata": {"resourceVersion": str(store.version)}, "items": items}
        )

    async def _watch(
        self, request: web.Request, store: Store, selected: Selector
    ) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            await self._stream(response, store, selected, version)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._watches.discard(task)
        return response

    async def _stream(
        self, response: web.StreamResponse, store: Store, selected: Selector, version: int
    ) -> None:
        while True:
            if version < store.oldest:
                await _line(response, "ERROR", {"kind": "Status", "code": 410, "message": "gone"})
                return
            upto = store.version
            for made, kind, item in store.events_since(version, selected):
                await asyncio.sleep(made + self.watch_delay - time.monotonic())
                await self.watches_flow.wait()
                await _line(response, kind, item)
            version = upto
            await store.wait_beyond(version)

    async def _create(self, request: web.Request) -> web.Response:
        item = await request.json()
        item["metadata"].setdefault("namespace", request.match_info["namespace"])
        store = self.stores[request.match_info["kind"]]
        if (item["metadata"]["namespace"], item["metadata"]["name"]) in store.objects:
            return _status(409, "already exists")
        return web.json_response(store.put(item), status=201)

    async def _one(self, request: web.Request) -> web.Response:
        store = self.stores[request.match_info["kind"]]
        key = (request.match_info.get("namespace", ""), request.match_info["name"])
        found = store.objects.get(key)
        if found is None:
            return _status(404, f"{key[1]} not found")
        if request.method == "GET":
            return web.json_response(found)
        if request.method == "DELETE":
            store.delete(*key)
            return web.json_response({})
        return self._patch(store, found, await request.json())

    def _patch(self, store: Store, found: Object, patch: Any) -> web.Response:
        uid = patch.get("metadata", {}).get("uid")
        if uid is not None and uid != found["metadata"].get("uid"):
            return _status(409, "Precondition failed: UID in precondition")
        return web.json_response(store.put(merged(found, patch)))


async def _line(response: web.StreamResponse, kind: str, item: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def _selector(text: str) -> Selector:
    field, _, value = text.partition("=")
    if field == "spec.nodeName":
        return lambda item: item.get("spec", {}).get("nodeName") == value
    if field == "metadata.name":
        return lambda item: item["metadata"]["name"] == value
    return lambda item: True
