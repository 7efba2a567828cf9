"""Routes that kube-scheduler calls, as the extenders of 2019 named them, under all their prefixes.

A POST to one of these paths goes straight to its handler, because routing, dependencies and
middleware of the framework cost more than most answers. Every other request is the framework's.
The same handlers are mounted there too: for the OpenAPI document, and for requests that are traced.

Status codes are the original's: filter answers 200 whatever comes, bind 500 with the same body when
it fails, because a scheduler takes anything else for a broken extender. While the process is not
ready, filter and bind reply with ``Error``, and the scheduler retries.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuextender import metrics
from gpuextender.health import Readiness
from gpuextender.http.openapi import JSON, PREFIXES, Document, answers, request_body
from gpuextender.scheduling import messages
from gpuextender.scheduling.bind import Bind
from gpuextender.scheduling.filter import Filter
from gpuextender.scheduling.messages import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MessageError,
    PreemptionArgs,
    PreemptionResult,
)
from gpuextender.scheduling.preempt import Preempt
from gpuextender.scheduling.prioritize import Prioritize

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


_DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "filter": {
        "openapi_extra": request_body(ExtenderArgs, ARGS),
        "responses": answers({200: FilterResult}),
    },
    "prioritize": {
        "openapi_extra": request_body(ExtenderArgs, ARGS),
        "responses": answers({200: list[HostPriority]}),
    },
    "bind": {
        "openapi_extra": request_body(BindingArgs, BINDING),
        "responses": answers({200: BindingResult, 500: BindingResult}),
    },
    "preempt": {
        "openapi_extra": request_body(PreemptionArgs, PREEMPTION),
        "responses": answers({200: PreemptionResult}),
    },
}


_VERB_SECONDS: Final = {name: metrics.VERB_SECONDS.labels(name) for name in _DOCUMENTS}


class JsonReply(msgspec.Struct, frozen=True):
    """A body of JSON and its status."""

    body: bytes
    status: int = 200


Handler = Callable[[bytes], Awaitable[JsonReply]]


class DirectRoutes:
    """An ASGI application that calls the handlers of some paths directly.

    Args:
        handlers: by path, for POST.
        behind: the application for all other requests.
    """

    def __init__(self, handlers: Mapping[str, Handler], behind: ASGIApp) -> None:
        self._handlers = handlers
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope.get("path", ""))
        if handler is None or scope.get("method") != "POST":
            await self._behind(scope, receive, send)
            return
        body = await _body(receive)
        if body is not None:
            await _send(send, await handler(body))


async def _body(receive: Receive) -> bytes | None:
    """The whole body; ``None`` where the client went away."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send(send: Send, reply: JsonReply) -> None:
    headers = [
        (b"content-length", str(len(reply.body)).encode()),
        (b"content-type", JSON.encode()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


class SchedulerRoutes:
    """Handlers of the scheduler's calls: :meth:`handlers` by path, :meth:`router` with schemas."""

    def __init__(
        self,
        *,
        filter_: Filter,
        prioritize: Prioritize,
        bind: Bind,
        preempt: Preempt,
        health: Readiness,
    ) -> None:
        self._filter = filter_
        self._preempt = preempt
        self._prioritize = prioritize
        self._bind = bind
        self._health = health

    def handlers(self) -> dict[str, Handler]:
        """All verbs under all prefixes, by path."""
        return {path: handler for path, _, handler in self._routes()}

    def router(self) -> APIRouter:
        """The same as routes of the framework, with their documents."""
        router = APIRouter(tags=["scheduler"])
        for path, name, handler in self._routes():
            router.add_api_route(
                path,
                _endpoint(handler),
                methods=["POST"],
                name=name,
                description=handler.__doc__,
                **_DOCUMENTS[name],
            )
        return router

    def _routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Path, name and handler; ``sort`` is the topology extender's prioritize."""
        verbs = {
            "filter": self.filter,
            "prioritize": self.prioritize,
            "bind": self.bind,
            "preempt": self.preempt,
        }
        for prefix in PREFIXES:
            for name, handler in verbs.items():
                yield f"{prefix}/{name}", name, handler
            yield f"{prefix}/sort", "prioritize", self.prioritize

    async def filter(self, body: bytes) -> JsonReply:
        """Which nodes can take the pod (``ExtenderArgs`` to ``ExtenderFilterResult``)."""
        with _VERB_SECONDS["filter"].time():
            obstacle = self._health.obstacle()
            result = FilterResult(error=obstacle) if obstacle else await self._filter.filter(body)
            return JsonReply(messages.encode(result))

    async def prioritize(self, body: bytes) -> JsonReply:
        """How good each node is, 0..10 (``ExtenderArgs`` to ``HostPriorityList``)."""
        with _VERB_SECONDS["prioritize"].time():
            return JsonReply(await self._prioritize.prioritize(body))

    async def preempt(self, body: bytes) -> JsonReply:
        """Whom to evict (``ExtenderPreemptionArgs`` to ``ExtenderPreemptionResult``)."""
        with _VERB_SECONDS["preempt"].time():
            return JsonReply(messages.encode(await self._preempt.preempt(body)))

    async def bind(self, body: bytes) -> JsonReply:
        """Bind a pod (``ExtenderBindingArgs`` to ``ExtenderBindingResult``)."""
        with _VERB_SECONDS["bind"].time():
            error = await self._bound(body)
        return JsonReply(messages.encode(BindingResult(error)), status=500 if error else 200)

    async def _bound(self, body: bytes) -> str:
        if obstacle := await self._health.unconfirmed():
            return obstacle
        try:
            args = messages.decode(body, BindingArgs)
        except MessageError as error:
            return str(error)
        return (await self._bind.bind(args)).error


def _endpoint(handler: Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def endpoint(request: Request) -> Response:
        reply = await handler(await request.body())
        return Response(reply.body, status_code=reply.status, media_type=JSON)

    return endpoint
