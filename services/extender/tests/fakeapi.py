"""A Kubernetes API server over real HTTP, as far as an extender can tell the difference.

It keeps nodes, pods, config maps and events; lists in pages; watches with bookmarks, history and
410; binds as the real one does (UID precondition, annotations merged, 409 when already bound).
Faults are asked for by verb and happen once each, in order.
"""

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from typing import Any, Self

from aiohttp import web
from fakeanswers import Object, key, line, merged, path_key, status, within

Fault = Callable[[web.Request], Any]
PLURALS = {"nodes": "Node", "pods": "Pod", "configmaps": "ConfigMap", "events": "Event"}


class FakeApiServer:
    """Use as an async context; :attr:`url` is where it listens."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self._history: dict[str, list[tuple[int, str, Object]]] = defaultdict(list)
        self._compacted = 0
        self._version = 100
        self._changed = asyncio.Condition()
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._watches: set[asyncio.Task[None]] = set()
        self._pages: Counter[str] = Counter()
        self.requests: list[tuple[str, str]] = []
        self.bindings: list[Object] = []
        self.bookmarks_every: float | None = None
        self.refuse = False
        self._silent = False
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        for prefix in ("/api/v1/{plural}", "/api/v1/namespaces/{namespace}/{plural}"):
            app.router.add_get(prefix, self._collection)
            app.router.add_post(prefix, self._create)
            app.router.add_get(prefix + "/{name}", self._get)
            app.router.add_patch(prefix + "/{name}", self._patch)
            app.router.add_patch(prefix + "/{name}/status", self._patch)
        binding = "/api/v1/namespaces/{namespace}/pods/{name}/binding"
        app.router.add_post(binding, self._bind)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drop_watches()
        await self._runner.cleanup()

    def kubeconfig(self) -> str:
        """A kubeconfig that leads here."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )

    # What a test says.

    async def put(self, plural: str, item: Object) -> Object:
        """Create or replace an object; watches see it."""
        item = deepcopy(item)
        known = self._objects[plural].get(key(item))
        async with self._changed:
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
            self._objects[plural][key(item)] = item
            kind = "MODIFIED" if known else "ADDED"
            self._history[plural].append((self._version, kind, deepcopy(item)))
            self._changed.notify_all()
        return item

    async def delete(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object; watches see it."""
        async with self._changed:
            self._version += 1
            item = self._objects[plural].pop(f"{namespace}/{name}")
            item["metadata"]["resourceVersion"] = str(self._version)
            self._history[plural].append((self._version, "DELETED", item))
            self._changed.notify_all()

    def find(self, plural: str, name: str, namespace: str = "") -> Object:
        """An object as it is stored."""
        return self._objects[plural][f"{namespace}/{name}"]

    def all(self, plural: str) -> list[Object]:
        """Every object of a kind."""
        return list(self._objects[plural].values())

    def fail_next(self, verb: str, fault: Fault) -> None:
        """Answer the next ``verb`` (list, watch, get, create, patch, bind) with ``fault``."""
        self._faults[verb].append(fault)

    @asynccontextmanager
    async def silent_watches(self) -> AsyncIterator[None]:
        """Keep events from watches for a while; they come at the end."""
        self._silent = True
        try:
            yield
        finally:
            async with self._changed:
                self._silent = False
                self._changed.notify_all()

    def drop_watches(self) -> None:
        """Cut every open watch connection."""
        for task in self._watches:
            task.cancel()

    def compact(self) -> None:
        """Forget history, so that watches from before get 410."""
        self._compacted = self._version
        self._history.clear()

    def count(self, method: str, path: str) -> int:
        """Requests seen whose path ends so."""
        return sum(1 for seen, at in self.requests if seen == method and at.endswith(path))

    def lists(self, plural: str) -> int:
        """Pages of a kind that were asked for."""
        return self._pages[plural]

    def watching(self, plural: str) -> int:
        """Open watches on a kind."""
        return sum(1 for task in self._watches if task.get_name() == plural)

    @property
    def version(self) -> str:
        """The newest resource version."""
        return str(self._version)

    # What the server does.

    async def _fault(self, verb: str, request: web.Request) -> web.StreamResponse | None:
        self.requests.append((request.method, request.path))
        if self.refuse:
            return status(503, "refused by a test")
        if not self._faults[verb]:
            return None
        answer = self._faults[verb].popleft()(request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return answer  # type: ignore[no-any-return]

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self._fault("watch", request) or await self._watch(request)
        self._pages[request.match_info["plural"]] += 1
        return await self._fault("list", request) or self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        plural = request.match_info["plural"]
        items = [item for item in self.all(plural) if within(item, request)]
        start = int(request.query.get("continue", 0))
        end = start + int(request.query.get("limit", len(items) or 1))
        metadata = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        kind = PLURALS[plural] + "List"
        return web.json_response(
            {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items[start:end]}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        if version < self._compacted:
            return status(410, "too old resource version")
        await response.prepare(request)
        task = asyncio.ensure_future(self._stream(request, response, version))
        task.set_name(request.match_info["plural"])
        self._watches.add(task)
        try:
            await task
        except asyncio.CancelledError:
            if request.transport:
                request.transport.close()
        finally:
            self._watches.discard(task)
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, version: int
    ) -> None:
        plural = request.match_info["plural"]
        while True:
            for at, kind, item in [e for e in self._history[plural] if e[0] > version]:
                version = at
                if within(item, request):
                    await line(response, {"type": kind, "object": item})
            if version < self._version or self.bookmarks_every:
                version = self._version
                mark = {"kind": PLURALS[plural], "metadata": {"resourceVersion": str(version)}}
                await line(response, {"type": "BOOKMARK", "object": mark})
            with suppress(TimeoutError):
                async with asyncio.timeout(self.bookmarks_every), self._changed:
                    while version >= self._version or self._silent:
                        await self._changed.wait()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if fault := await self._fault("get", request):
            return fault
        item = self._objects[request.match_info["plural"]].get(path_key(request))
        return web.json_response(item) if item else status(404, "not found")

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if fault := await self._fault("create", request):
            return fault
        item = await request.json()
        item["metadata"].setdefault("namespace", request.match_info.get("namespace", ""))
        await self.put(request.match_info["plural"], item)
        return web.json_response(item, status=201)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        if fault := await self._fault("patch", request):
            return fault
        item = self._objects[request.match_info["plural"]].get(path_key(request))
        if item is None:
            return status(404, "not found")
        return web.json_response(
            await self.put(request.match_info["plural"], merged(item, await request.json()))
        )

    async def _bind(self, request: web.Request) -> web.StreamResponse:
        if fault := await self._fault("bind", request):
            return fault
        return await self.apply_binding(request)

    async def apply_binding(self, request: web.Request) -> web.Response:
        """Bind as the real server does; a fault may call this and still answer otherwise."""
        pod = self._objects["pods"].get(path_key(request))
        if pod is None:
            return status(404, f'pods "{request.match_info["name"]}" not found')
        binding = await request.json()
        metadata = binding["metadata"]
        uid = metadata.get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            return status(409, f"Precondition failed: UID in precondition: {uid}")
        if pod["metadata"].get("deletionTimestamp"):
            return status(409, "pod is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            return status(409, f'pod is already assigned to node "{pod["spec"]["nodeName"]}"')
        changed = deepcopy(pod)
        changed["spec"]["nodeName"] = binding["target"]["name"]
        changed["metadata"].setdefault("annotations", {}).update(metadata.get("annotations", {}))
        self.bindings.append(binding)
        await self.put("pods", changed)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)
