"""A fake Kubernetes API server over real HTTP that services cannot distinguish from a real one.

It keeps pods, nodes, events, config maps, secrets, webhook configurations, resource slices and
claims under one revision; lists in pages; watches with field selectors, bookmarks, history and 410;
applies merge patches and bindings as the real one does (UID and version preconditions, annotations
merged, 409 for a pod that is bound). It can be restored to an earlier revision. Tests request
faults once by verb, or for as long as they are set.
"""

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from gpukube.testing.answers import Key, Object, selector_of, status, too_large
from gpukube.testing.objectrequests import ObjectRequests
from gpukube.testing.store import Revision, Store
from gpukube.testing.watches import Watches, WatchTiming
from gpukube.watch.collection import PROBE

Fault = Callable[[web.Request], Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Snapshot = tuple[int, dict[str, dict[Key, Object]]]
KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "events": "Event",
    "configmaps": "ConfigMap",
    "resourceslices": "ResourceSlice",
    "secrets": "Secret",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "deviceclasses": "DeviceClass",
    "podgroups": "PodGroup",
    "namespaces": "Namespace",
    "resourcequotas": "ResourceQuota",
    "limitranges": "LimitRange",
    "leases": "Lease",
}


class FakeApiServer:
    """Use it as an async context.

    Attributes:
        stores: objects by plural.
        requests: method and path of every request, in order.
        calls: how often each method and path was requested.
        fail: status by method and part of a path; every such request gets it.
        refuse: every request gets 503.
        permits: whether a request may be made, by its method and its path with the query; 403 else.
        bookmarks_every: seconds between bookmarks of a quiet watch; None sends none.
        watch_delay: seconds by which watches are late.
        watches_flow: while it is cleared, watches deliver nothing.
        pod_groups: the API of PodGroups is served.
        proxied: replies of pods through the proxy, by namespace, pod with its port, and path.
        watch_cache: lists with resourceVersion=0 ignore their limit, as they do with a watch cache.
        reject_future_watches: a watch from a version that was not reached gets 504 instead of
            silence.
    """

    def __init__(self) -> None:
        self._revision = Revision()
        self.stores = {plural: Store(self._revision) for plural in KINDS}
        self._watches = Watches(self._revision, self._watch_timing)
        self._objects = ObjectRequests(self.stores)
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._lists: Counter[str] = Counter()
        self.requests: list[tuple[str, str]] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        self.fail: dict[tuple[str, str], int] = {}
        self.refuse = False
        self.permits: Callable[[str, str], bool] = lambda _method, _target: True
        self.watch_cache = True
        self.pod_groups = False
        self.proxied: dict[tuple[str, str, str], bytes] = {}
        self.reject_future_watches = False
        self.bookmarks_every: float | None = None
        self.watch_delay = 0.0
        self.watches_flow = asyncio.Event()
        self.watches_flow.set()
        self.url = ""

    @property
    def bindings(self) -> list[Object]:
        """The Binding objects that were applied."""
        return self._objects.bindings

    @property
    def pods(self) -> Store:
        return self.stores["pods"]

    @property
    def nodes(self) -> Store:
        return self.stores["nodes"]

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._failing])
        one = "/{plural}/{name}"
        for prefix in (
            "/api/v1",
            "/api/v1/namespaces/{namespace}",
            "/apis/resource.k8s.io/v1",
            "/apis/admissionregistration.k8s.io/v1",
            "/apis/scheduling.k8s.io/v1beta1",
            "/apis/resource.k8s.io/v1/namespaces/{namespace}",
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}",
        ):
            app.router.add_get(prefix + "/{plural}", self._collection)
            app.router.add_post(prefix + "/{plural}", self._unless("create", self._objects.create))
            app.router.add_get(prefix + one, self._unless("get", self._objects.get))
            patch = self._unless("patch", self._objects.patch)
            app.router.add_patch(prefix + one, patch)
            app.router.add_patch(prefix + one + "/status", patch)
            app.router.add_delete(prefix + one, self._unless("delete", self._objects.delete))
            bind = self._unless("bind", self.apply_binding)
            app.router.add_post(prefix + "/pods/{name}/binding", bind)
        app.router.add_get("/apis/scheduling.k8s.io/v1beta1", self._pod_group_api)
        proxy = "/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}"
        app.router.add_get(proxy, self._unless("proxy", self._proxy))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drop_watches()
        await self._runner.cleanup()

    def kubeconfig(self) -> str:
        """The text of a kubeconfig for this server."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        return json.dumps(document)

    def write_kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for this server into a folder."""
        path = folder / "kubeconfig"
        path.write_text(self.kubeconfig())
        return path

    # What a test does to the cluster.

    async def put(self, plural: str, item: Object) -> Object:
        """Create or replace an object."""
        return self.stores[plural].put(item)

    async def delete(self, plural: str, name: str, namespace: str = "") -> None:
        self.stores[plural].delete(namespace, name)

    def find(self, plural: str, name: str, namespace: str = "") -> Object:
        return self.stores[plural].objects[namespace, name]

    def all(self, plural: str) -> list[Object]:
        return list(self.stores[plural].objects.values())

    def compact(self) -> None:
        """Drop the history of all kinds, so that older watches have to list again."""
        for store in self.stores.values():
            store.compact()

    def snapshot(self) -> Snapshot:
        """A backup of everything, for :meth:`restore`."""
        objects = {plural: dict(store.objects) for plural, store in self.stores.items()}
        return self._revision.number, objects

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a backup, revision included, as a restored etcd does; watches are cut."""
        number, objects = snapshot
        self._revision.set(number)
        for plural, store in self.stores.items():
            store.reset(dict(objects[plural]))
        self.drop_watches()

    # What a test does to the connection.

    def fail_next(self, verb: str, fault: Fault) -> None:
        """Answer the next ``verb`` with ``fault``, or go on where that returns None.

        Verbs are list, probe, watch, get, create, patch, delete, bind and proxy.
        """
        self._faults[verb].append(fault)

    @asynccontextmanager
    async def silent_watches(self) -> AsyncIterator[None]:
        """Keep events from watches; they arrive at the end."""
        self.watches_flow.clear()
        try:
            yield
        finally:
            self.watches_flow.set()

    def drop_watches(self) -> None:
        """Cut every open watch connection."""
        self._watches.drop()

    # What a test reads.

    def count(self, method: str, path: str) -> int:
        """Number of requests whose path ends so."""
        return sum(1 for seen, at in self.requests if seen == method and at.endswith(path))

    def lists(self, plural: str) -> int:
        """Number of pages of a kind that were requested."""
        return self._lists[plural]

    def watching(self, plural: str) -> int:
        """Number of open watches on a kind."""
        return self._watches.count(plural)

    @property
    def version(self) -> str:
        """The current resource version."""
        return str(self._revision.number)

    # The server.

    @web.middleware
    async def _failing(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.calls[request.method, request.path] += 1
        if self.refuse:
            return status(503, "refused by a test")
        if not self.permits(request.method, request.path_qs):
            return status(403, "no role allows it")
        for (method, part), code in self.fail.items():
            if method == request.method and part in request.path:
                return status(code, "injected")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _fault(self, verb: str, request: web.Request) -> web.StreamResponse | None:
        if not self._faults[verb]:
            return None
        answer = self._faults[verb].popleft()(request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return answer  # type: ignore[no-any-return]

    def _unless(self, verb: str, handler: Handler) -> Handler:
        """A handler that a requested fault of the verb replaces."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._fault(verb, request) or await handler(request)

        return handle

    async def apply_binding(self, request: web.Request) -> web.StreamResponse:
        """Bind as the real server does; a fault may call this and still answer otherwise."""
        return await self._objects.bind(request)

    async def _pod_group_api(self, request: web.Request) -> web.StreamResponse:  # noqa: ARG002
        """Discovery of the API version that PodGroups have; PriorityClasses had it long before."""
        names = ["podgroups"] if self.pod_groups else ["priorityclasses"]
        return web.json_response({"resources": [{"name": name} for name in names]})

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        found = request.match_info
        reply = self.proxied.get((found["namespace"], found["name"], found["path"]))
        return status(503, "no such pod answers") if reply is None else web.Response(body=reply)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self._fault("watch", request) or await self._watch(request)
        if PROBE in request.query.get("fieldSelector", ""):
            return await self._fault("probe", request) or self._list(request)
        self._lists[request.match_info["plural"]] += 1
        return await self._fault("list", request) or self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        plural, selected = request.match_info["plural"], selector_of(request)
        items = [item for item in self.all(plural) if selected(item)]
        cached = self.watch_cache and request.query.get("resourceVersion") == "0"
        limit = 0 if cached else int(request.query.get("limit", 0))
        start = int(request.query.get("continue", 0))
        end = start + (limit or len(items) or 1)
        metadata = {"resourceVersion": self.version}
        if end < len(items):
            metadata["continue"] = str(end)
        head = {"kind": KINDS[plural] + "List", "apiVersion": "v1", "metadata": metadata}
        found = head | {"items": items[start:end]}
        return web.json_response(text=json.dumps(found, separators=(",", ":")))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        plural, version = request.match_info["plural"], int(request.query["resourceVersion"])
        store = self.stores[plural]
        if version < store.oldest:
            return status(410, "too old resource version")
        if version > self._revision.number and self.reject_future_watches:
            return web.json_response(too_large(version, self._revision.number), status=504)
        return await self._watches.serve(request, store, version)

    def _watch_timing(self) -> WatchTiming:
        return WatchTiming(self.watch_delay, self.watches_flow, self.bookmarks_every)
