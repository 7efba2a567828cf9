"""Routes the scheduler calls, as the original named them, under every prefix that was ever used.

Status codes are the original's: filter answers 200 whatever comes, bind 500 with the same body when
it fails, because a scheduler takes anything else for a broken extender. While the process is not
ready filter and bind say so in ``Error``: the scheduler tries again.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from gpuextender import messages, metrics, schemas
from gpuextender.bind import Bind
from gpuextender.filter import Filter
from gpuextender.front import JSON, Handler, Reply
from gpuextender.health import Health
from gpuextender.messages import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MessageError,
    PreemptionArgs,
    PreemptionResult,
)
from gpuextender.preempt import Preempt
from gpuextender.prioritize import Prioritize

SHARE_PREFIX: Final = "/gpushare-scheduler"
PREFIXES: Final = (SHARE_PREFIX, "/gputopology-scheduler", "/gpu-scheduler-extender")

KINDS: Final = (
    ExtenderArgs,
    FilterResult,
    HostPriority,
    BindingArgs,
    BindingResult,
    PreemptionArgs,
    PreemptionResult,
)

_DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "filter": {
        "openapi_extra": schemas.body(ExtenderArgs, schemas.ARGS),
        "responses": schemas.answers({200: FilterResult}),
    },
    "prioritize": {
        "openapi_extra": schemas.body(ExtenderArgs, schemas.ARGS),
        "responses": schemas.answers({200: list[HostPriority]}),
    },
    "bind": {
        "openapi_extra": schemas.body(BindingArgs, schemas.BINDING),
        "responses": schemas.answers({200: BindingResult, 500: BindingResult}),
    },
    "preempt": {
        "openapi_extra": schemas.body(PreemptionArgs, schemas.PREEMPTION),
        "responses": schemas.answers({200: PreemptionResult}),
    },
}


_VERB_SECONDS: Final = {name: metrics.VERB_SECONDS.labels(name) for name in _DOCUMENTS}


class Verbs:
    """Handlers of the verbs; :meth:`handlers` says where, :meth:`router` documents them."""

    def __init__(
        self,
        *,
        filter_: Filter,
        prioritize: Prioritize,
        bind: Bind,
        preempt: Preempt,
        health: Health,
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

    async def filter(self, body: bytes) -> Reply:
        """Which nodes can take the pod (``ExtenderArgs`` to ``ExtenderFilterResult``)."""
        with _VERB_SECONDS["filter"].time():
            obstacle = self._health.obstacle()
            result = FilterResult(error=obstacle) if obstacle else await self._filter.answer(body)
            return Reply(messages.encode(result))

    async def prioritize(self, body: bytes) -> Reply:
        """How good each node is, 0..10 (``ExtenderArgs`` to ``HostPriorityList``)."""
        with _VERB_SECONDS["prioritize"].time():
            return Reply(await self._prioritize.answer(body))

    async def preempt(self, body: bytes) -> Reply:
        """Whom to evict (``ExtenderPreemptionArgs`` to ``ExtenderPreemptionResult``)."""
        with _VERB_SECONDS["preempt"].time():
            return Reply(messages.encode(self._preempt.answer(body)))

    async def bind(self, body: bytes) -> Reply:
        """Bind a pod (``ExtenderBindingArgs`` to ``ExtenderBindingResult``)."""
        with _VERB_SECONDS["bind"].time():
            error = await self._bound(body)
        return Reply(messages.encode(BindingResult(error)), status=500 if error else 200)

    async def _bound(self, body: bytes) -> str:
        if obstacle := await self._health.unconfirmed():
            return obstacle
        try:
            args = messages.decode(body, BindingArgs)
        except MessageError as error:
            return str(error)
        return (await self._bind.answer(args)).error


def _endpoint(handler: Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def endpoint(request: Request) -> Response:
        reply = await handler(await request.body())
        return Response(reply.body, status_code=reply.status, media_type=JSON)

    return endpoint
