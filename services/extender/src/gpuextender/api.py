"""The read API for people and tools: ``/api/v1``. Nothing here changes anything.

Errors are ``{"error": sentence}`` with 400 for a question that makes no sense, 404 for what is not
there and 503 while nothing may be decided on what is known.
"""

from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from gpucore.grouping import Grouping
from gpucore.model import Claim
from gpucore.units import NodeName
from gpuextender import messages, questions, schemas, views
from gpuextender.front import JSON
from gpuextender.health import Health
from gpuextender.messages import MessageError
from gpuextender.slices import Slices, encoded
from gpuextender.state import State


class ErrorView(msgspec.Struct):
    """What is wrong, in a sentence."""

    error: str


KINDS: Final = (
    views.NodesView,
    views.NodeView,
    views.ExplainView,
    questions.QuestionBody,
    questions.AnswerView,
    ErrorView,
)


class ReadApi:
    """Handlers of ``/api/v1``.

    Args:
        policy: card choice where neither pod nor node says.
        grouping: how cards that go together are chosen.
    """

    def __init__(self, state: State, health: Health, *, policy: str, grouping: Grouping) -> None:
        self._state, self._health = state, health
        self._policy, self._grouping = policy, grouping

    def router(self) -> APIRouter:
        """All routes."""
        router = APIRouter(prefix="/api/v1", tags=["read"])
        for path, handler, answer in (
            ("/nodes", self.nodes, views.NodesView),
            ("/nodes/{node}", self.node, views.NodeView),
            ("/pods/{namespace}/{name}/explain", self.explain, views.ExplainView),
        ):
            router.add_api_route(path, handler, responses=_answers(answer))
        router.add_api_route(
            "/whatif",
            self.whatif,
            methods=["POST"],
            responses=_answers(questions.AnswerView) | schemas.answers({400: ErrorView}),
            openapi_extra=schemas.body(questions.QuestionBody, schemas.WHATIF),
        )
        return router

    async def nodes(self) -> Response:
        """Every node with its cards and who is on them."""
        if unready := self._unready():
            return unready
        slices = Slices()
        return await _long(await views.nodes_view(self._state.ledger, slices), slices)

    async def node(self, node: str) -> Response:
        """One node."""
        if unready := self._unready():
            return unready
        account = self._state.ledger.node(NodeName(node))
        if account is None:
            return _json(ErrorView(f"node {node} is not known"), 404)
        return _json(views.node_view(account))

    async def explain(self, namespace: str, name: str) -> Response:
        """Why a pod waits, node by node and card by card, or where it sits."""
        if unready := self._unready():
            return unready
        ledger = self._state.ledger
        claim = self._claim(namespace, name)
        if claim is not None:
            return _json(views.placed_view(claim, ledger.node(claim.placement.node)))
        asking = self._state.find(namespace, name)
        if asking is None:
            text = f"pod {namespace}/{name} is not known to ask for a GPU"
            return _json(ErrorView(text), 404)
        slices = Slices()
        view = await views.waiting_view(
            ledger, asking, slices, policy=self._policy, grouping=self._grouping
        )
        return await _long(view, slices)

    async def whatif(self, request: Request) -> Response:
        """What would become of pods if they came now, in this order."""
        if unready := self._unready():
            return unready
        try:
            wishes = questions.read_question(await request.body())
        except MessageError as error:
            return _json(ErrorView(str(error)), 400)
        slices = Slices()
        view = await questions.answer(
            self._state.ledger, wishes, slices, policy=self._policy, grouping=self._grouping
        )
        return await _long(view, slices)

    def _unready(self) -> Response | None:
        obstacle = self._health.obstacle()
        return _json(ErrorView(obstacle), 503) if obstacle else None

    def _claim(self, namespace: str, name: str) -> Claim | None:
        """By name: a search, for people ask rarely and claims are kept by UID."""
        for claim in self._state.ledger.claims().values():
            if claim.name == name and claim.namespace == namespace:
                return claim
        return None


def _answers(good: type) -> dict[int | str, dict[str, Any]]:
    return schemas.answers({200: good, 404: ErrorView, 503: ErrorView})


async def _long(view: msgspec.Struct, slices: Slices) -> Response:
    return Response(await encoded(view, slices), media_type=JSON)


def _json(view: msgspec.Struct, status: int = 200) -> Response:
    return Response(messages.encode(view), status_code=status, media_type=JSON)
