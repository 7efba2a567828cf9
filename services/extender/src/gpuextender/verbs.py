"""Routes the scheduler calls, as the original named them, under every prefix that was ever used.

Status codes are the original's: filter answers 200 whatever comes, bind 500 with the same body when
it fails, because a scheduler takes anything else for a broken extender. While the process is not
ready filter and bind say so in ``Error``: the scheduler tries again.
"""

from time import perf_counter
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from gpuextender import messages, metrics, schemas
from gpuextender.bind import Bind
from gpuextender.filter import Filter
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

PREFIXES: Final = ("/gpushare-scheduler", "/gputopology-scheduler", "/gpu-scheduler-extender")
JSON: Final = "application/json"


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


class Verbs:
    """Handlers of the verbs; :meth:`router` mounts them."""

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

    def router(self) -> APIRouter:
        """All verbs under all prefixes; ``sort`` is the topology extender's prioritize."""
        router = APIRouter(tags=["scheduler"])
        for prefix in PREFIXES:
            for name, handler in (
                ("filter", self.filter),
                ("prioritize", self.prioritize),
                ("sort", self.prioritize),
                ("bind", self.bind),
                ("preempt", self.preempt),
            ):
                router.add_api_route(
                    f"{prefix}/{name}", handler, methods=["POST"], **_DOCUMENTS[handler.__name__]
                )
        return router

    async def filter(self, request: Request) -> Response:
        """Which nodes can take the pod (``ExtenderArgs`` to ``ExtenderFilterResult``)."""
        body = await request.body()
        with metrics.VERB_SECONDS.labels("filter").time():
            obstacle = self._health.obstacle()
            result = FilterResult(error=obstacle) if obstacle else await self._filter.answer(body)
            return _reply(messages.encode(result))

    async def prioritize(self, request: Request) -> Response:
        """How good each node is, 0..10 (``ExtenderArgs`` to ``HostPriorityList``)."""
        body = await request.body()
        with metrics.VERB_SECONDS.labels("prioritize").time():
            return _reply(await self._prioritize.answer(body))

    async def preempt(self, request: Request) -> Response:
        """Whom to evict (``ExtenderPreemptionArgs`` to ``ExtenderPreemptionResult``)."""
        body = await request.body()
        with metrics.VERB_SECONDS.labels("preempt").time():
            return _reply(messages.encode(self._preempt.answer(body)))

    async def bind(self, request: Request) -> Response:
        """Bind a pod (``ExtenderBindingArgs`` to ``ExtenderBindingResult``)."""
        started = perf_counter()
        error = await self._bound(await request.body())
        metrics.VERB_SECONDS.labels("bind").observe(perf_counter() - started)
        return _reply(messages.encode(BindingResult(error)), status=500 if error else 200)

    async def _bound(self, body: bytes) -> str:
        if obstacle := self._health.obstacle():
            return obstacle
        try:
            args = messages.decode(body, BindingArgs)
        except MessageError as error:
            return str(error)
        return (await self._bind.answer(args)).error


def _reply(body: bytes, *, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type=JSON)
