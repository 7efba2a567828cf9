"""Routes that kube-scheduler calls, as the extenders of 2019 named them, under all their prefixes.

Status codes are the original's: filter answers 200 whatever comes, bind 500 with the same body when
it fails, because a scheduler takes anything else for a broken extender. While the process is not
ready, filter and bind reply with ``Error``, and the scheduler retries.
"""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter

from gpuextender import metrics
from gpuextender.health import Readiness
from gpuextender.http.openapi import PREFIXES, Document, answers, request_body
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
from gpukube.server.direct import Handler, HttpReply, endpoint

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
                endpoint(handler),
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

    async def filter(self, body: bytes) -> HttpReply:
        """Which nodes can take the pod (``ExtenderArgs`` to ``ExtenderFilterResult``)."""
        with _VERB_SECONDS["filter"].time():
            obstacle = self._health.obstacle()
            result = FilterResult(error=obstacle) if obstacle else await self._filter.filter(body)
            return HttpReply(messages.encode(result))

    async def prioritize(self, body: bytes) -> HttpReply:
        """How good each node is, 0..10 (``ExtenderArgs`` to ``HostPriorityList``)."""
        with _VERB_SECONDS["prioritize"].time():
            return HttpReply(await self._prioritize.prioritize(body))

    async def preempt(self, body: bytes) -> HttpReply:
        """Whom to evict (``ExtenderPreemptionArgs`` to ``ExtenderPreemptionResult``)."""
        with _VERB_SECONDS["preempt"].time():
            return HttpReply(messages.encode(await self._preempt.preempt(body)))

    async def bind(self, body: bytes) -> HttpReply:
        """Bind a pod (``ExtenderBindingArgs`` to ``ExtenderBindingResult``)."""
        with _VERB_SECONDS["bind"].time():
            error = await self._bound(body)
        return HttpReply(messages.encode(BindingResult(error)), status=500 if error else 200)

    async def _bound(self, body: bytes) -> str:
        if obstacle := await self._health.unconfirmed():
            return obstacle
        try:
            args = messages.decode(body, BindingArgs)
        except MessageError as error:
            return str(error)
        return (await self._bind.bind(args)).error
