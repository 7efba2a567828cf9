"""The read API for people and tools: ``/api/v1``. Nothing here changes anything.

Errors are ``{"error": sentence}`` with 400 for a question that makes no sense, 404 for what is not
there and 503 while nothing may be decided on what is known.

The core answers questions about pods, from the same values as the ``gpushare`` command, so both
give the same document. A question works on a copy of the cluster, in steps with room for the
scheduler's requests between them. One question is answered at a time, so that copies of large
clusters do not add up; those beyond a few are refused with 503 and ``Retry-After``.
"""

import re
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec
from fastapi import APIRouter, Request, Response

from gpucore.accounting.claim_offers import ClaimSpecs
from gpucore.accounting.node_info import NodeInfo
from gpucore.claims.facts import ClaimFacts
from gpucore.claims.followed import FollowedClaims
from gpucore.explain.answers import Answer, answers, notes_of
from gpucore.explain.claims import explaining_claims
from gpucore.explain.documents import PodExplanation, pod_explanation
from gpucore.explain.mix_documents import MixDoc, mix_document
from gpucore.explain.pod_states import Cluster, Explanation, PodFacts
from gpucore.explain.pods import explain_pod
from gpucore.explain.whatif_documents import WhatIfDoc, what_if_document
from gpucore.model import PodRequest
from gpucore.scheduling.candidates import Candidates, candidates_of
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.simulate.questions import (
    NO_CLAIMS,
    Question,
    RequestedPods,
    WhatIfQuestion,
    check_nodes,
    check_size,
    question_of,
    requested_pods,
)
from gpucore.steps import Steps
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.pod.scheduler_events import scheduler_record
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.whole_requests import pod_request_of
from gpuextender.health import Readiness
from gpuextender.http import openapi, views
from gpuextender.http.errors import ErrorView
from gpuextender.http.turns import (
    RETRY_SECONDS,
    ClientGoneError,
    TooManyQuestionsError,
    Turns,
    while_connected,
)
from gpuextender.scheduling import messages
from gpuextender.scheduling.binding import pod_path
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError
from gpukube.server.direct import JSON
from gpukube.server.time_slices import TimeSlices, encoded

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""Of a namespace or a pod; nothing else may become part of a path."""
CLAIM_API: Final = "/apis/resource.k8s.io/v1"
MOST_CLAIMS: Final = 20
"""ResourceClaims that are read for one question."""
_WHATIF: Final[openapi.Document] = {
    "pods": [{"name": "worker", "mem": 8, "replicas": 3}, {"name": "trainer", "gpus": 4}]
}


KINDS: Final = (
    views.NodesView,
    views.NodeView,
    PodExplanation,
    WhatIfQuestion,
    WhatIfDoc,
    MixDoc,
    ErrorView,
)


class PodQuestions:
    """Answers from the state and, for the pod in question, from the API server.

    Args:
        api: where the object of the pod is read; the state keeps only what placement needs.
        policy: what holds where neither pod nor node names a policy.
        claims: what is known of claims; ``None`` where the extender does not follow them.
    """

    def __init__(
        self,
        state: State,
        api: KubeClient,
        policy: ClusterPolicy,
        claims: FollowedClaims | None = None,
    ) -> None:
        self._state, self._api, self._policy = state, api, policy
        self._claims = claims
        self._turns = Turns()

    async def explain(self, namespace: str, name: str, slices: TimeSlices) -> PodExplanation | None:
        """Why a pod waits or where it is placed; ``None`` for a pod that requests no GPU.

        Raises:
            TooManyQuestionsError: too many questions wait.
            KubeError: the API server does not give the pod.
            WireError: an object is none of the Kubernetes API, or the pod has too many constraints.
        """
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return None
        async with self._turns.turn():
            facts = await self._facts(namespace, name)
            if facts is None:
                return None
            waits = facts.pod.uid if isinstance(facts, ClaimFacts) else None
            async with self._copy(slices, without=waits) as nodes:
                state = self._state
                cluster = Cluster(state.ledger, nodes, self._policy, state.nominations)
                found = await slices.finish(self._explained(facts, cluster))
                return await slices.finish(pod_explanation(found, cluster))

    def _explained(self, facts: PodFacts | ClaimFacts, cluster: Cluster) -> Steps[Explanation]:
        if isinstance(facts, PodFacts) or self._claims is None:
            return (yield from explain_pod(cast("PodFacts", facts), cluster))
        nodes = yield from self._claims.nodes(cluster.nodes)
        return (yield from explaining_claims(facts, nodes, cluster.nodes))

    async def what_if(self, question: Question, slices: TimeSlices) -> WhatIfDoc:
        """Where pods would be placed if they were created now, in this order.

        Raises:
            TooManyQuestionsError: too many questions wait.
            WireError: a node is none of the Kubernetes API.
        """
        async with self._turns.turn(), self._copy(slices) as copied:
            nodes = await self._with_offers(copied, slices)
            found = await slices.finish(self._answers(question, nodes))
            names, nominations = self._state.names, self._state.nominations
            notes = [n for each in question.wanted for n in notes_of(each, names, nominations)]
            return await slices.finish(what_if_document(found, self._policy, notes))

    def _answers(self, question: Question, nodes: Candidates) -> Steps[list[Answer]]:
        queued = self._state.queued(self._policy.profiles.names)
        nominations = self._state.nominations
        return answers(
            nodes, question.whatif_pods, self._policy, queued=queued, nominations=nominations
        )

    async def question(self, body: bytes) -> Question:
        """The pods of a what-if question, with their claims from the cluster.

        Raises:
            TooManyQuestionsError: too many questions wait.
            KubeError: the API server does not give a claim.
            WireError: the body is no such question, or its claims or its node are not known.
        """
        self._turns.check()
        requested = requested_pods(body, self._state.names)
        specs = await self._specs(requested) if requested.use_claims else NO_CLAIMS
        question = question_of(requested, self._state.names, specs)
        check_nodes(question.whatif_pods, self._state.ledger.node_objects())
        return question

    async def _specs(self, requested: RequestedPods) -> ClaimSpecs:
        if self._claims is None or not self._claims.reads_classes:
            needed = "extender.claims=true and extender.nominate other than off"
            raise WireError(f"pods with ResourceClaims are evaluated only with {needed}")
        keys = [key for key in requested.claims if all(map(_NAME.fullmatch, key))]
        lists = await self._claim_lists(keys)
        return self._claims.specs(requested.templates, lists)

    async def _with_offers(self, nodes: Candidates, slices: TimeSlices) -> Candidates:
        if self._claims is None:
            return nodes
        found = await slices.finish(self._claims.offers(nodes.node_infos, self._state.names.gpu))
        return msgspec.structs.replace(nodes, offers=found)

    @asynccontextmanager
    async def _copy(
        self, slices: TimeSlices, *, without: PodUid | None = None
    ) -> AsyncIterator[Candidates]:
        """A copy of the nodes, freed node by node: all at once takes 25 ms for 5,000 nodes.

        Args:
            without: a nominated pod with claims: what is reserved for it is free for it.
        """
        state = self._state
        found = await slices.finish(
            candidates_of(state.ledger, state.candidates, copies=True, without=without)
        )
        try:
            yield found
        finally:
            node_infos = dict(found.node_infos)
            cast("dict[NodeName, NodeInfo]", found.node_infos).clear()
            while node_infos:
                node_infos.popitem()
                await slices.yield_to_loop()

    async def _facts(self, namespace: str, name: str) -> PodFacts | ClaimFacts | None:
        names = self._state.names
        try:
            raw = await self._api.get(pod_path(namespace, name))
        except NotFoundError:
            return None
        pod = decode_pod(raw)
        by_claims = await self._claim_facts(pod, raw)
        if by_claims is not None:
            return by_claims
        pod_request = pod_request_of(pod, names)
        if pod_request is None:
            return None
        return self._extended(pod, pod_request, raw) or self._with_gang(pod, pod_request, raw)

    def _extended(self, pod: Pod, pod_request: PodRequest, raw: bytes) -> ClaimFacts | None:
        """Of a pod whose scheduler has yet to make a claim for its exclusive GPUs."""
        if self._claims is None:
            return None
        constraints = pod_constraints(raw, self._state.names)
        check_size(pod.name, constraints)
        return self._claims.facts_of_extended(pod, pod_request, raw, constraints)

    async def _claim_facts(self, pod: Pod, raw: bytes) -> ClaimFacts | None:
        if self._claims is None or not (pod.claims or pod.claim_templates):
            return None
        constraints = pod_constraints(raw, self._state.names)
        check_size(pod.name, constraints)
        lists = await self._claim_lists([(pod.namespace, name) for name in pod.claims])
        return self._claims.facts(pod, raw, constraints, lists)

    async def _claim_lists(self, keys: Collection[tuple[str, str]]) -> list[bytes]:
        """A list for each claim; a pod may name any number of them."""
        if len(keys) > MOST_CLAIMS:
            raise WireError(f"{len(keys)} ResourceClaims are too many, the most is {MOST_CLAIMS}")
        return [await self._claim(*key) for key in keys]

    async def _claim(self, namespace: str, name: str) -> bytes:
        """A list of at most one claim: the extender may list claims, and not get one."""
        query = {"fieldSelector": f"metadata.name={name}"}
        path = f"{CLAIM_API}/namespaces/{namespace}/resourceclaims"
        return await self._api.get(path, params=query)

    def _with_gang(self, pod: Pod, pod_request: PodRequest, raw: bytes) -> PodFacts:
        gang = self._state.gangs.gang_of(pod)
        constraints = pod_constraints(raw, self._state.names)
        check_size(pod.name, constraints)
        return PodFacts(
            pod=pod,
            pod_request=pod_request,
            constraints=constraints,
            scheduler_record=scheduler_record(raw),
            members=self._state.members(UnscheduledPod(pod, pod_request), gang) if gang else None,
            gang=gang,
        )


class ReadApi:
    """Handlers of ``/api/v1``.

    Attributes:
        lists: turns of all answers that list the nodes, so that those of large clusters do not add
            up.
    """

    def __init__(self, state: State, health: Readiness, questions: PodQuestions) -> None:
        self._state, self._health, self._questions = state, health, questions
        self.lists = Turns()

    def router(self) -> APIRouter:
        """All openapi."""
        router = APIRouter(prefix="/api/v1", tags=["read"])
        for path, handler, answer in (
            ("/nodes", self.nodes, views.NodesView),
            ("/nodes/{node}", self.node, views.NodeView),
            ("/mix", self.mix, MixDoc),
            ("/pods/{namespace}/{name}/explain", self.explain, PodExplanation),
        ):
            router.add_api_route(path, handler, responses=_answers(answer))
        router.add_api_route(
            "/whatif",
            self.whatif,
            methods=["POST"],
            responses=_answers(WhatIfDoc) | openapi.answers({400: ErrorView}),
            openapi_extra=openapi.request_body(WhatIfQuestion, _WHATIF),
        )
        return router

    async def nodes(self, request: Request) -> Response:
        """Every node with its GPUs and who is on them."""
        if unready := self._unready():
            return unready
        return await answered(request, self._all_nodes())

    async def _all_nodes(self) -> Response:
        async with self.lists.turn():
            slices = TimeSlices()
            return await _long(await views.nodes_view(self._state.ledger, slices), slices)

    async def node(self, node: str) -> Response:
        """One node."""
        if unready := self._unready():
            return unready
        node_info = self._state.ledger.node(NodeName(node))
        if node_info is None:
            return _json(ErrorView(f"node {node} is not known"), 404)
        return _json(views.node_view(node_info))

    async def mix(self) -> Response:
        """The pods that usually come, by which the fragmentation policy compares nodes."""
        if unready := self._unready():
            return unready
        return _json(mix_document(self._state.mix.mix, len(self._state.mix.history)))

    async def explain(self, namespace: str, name: str, request: Request) -> Response:
        """Why a pod waits, node by node and GPU by GPU, or where it sits."""
        if unready := self._unready():
            return unready
        return await answered(request, self._explained(namespace, name))

    async def _explained(self, namespace: str, name: str) -> Response:
        slices = TimeSlices()
        try:
            found = await self._questions.explain(namespace, name, slices)
        except (KubeError, WireError) as error:
            return _json(ErrorView(f"pod {namespace}/{name} cannot be explained: {error}"), 503)
        if found is None:
            text = f"pod {namespace}/{name} is not known to request a GPU"
            return _json(ErrorView(text), 404)
        return await _long(found, slices)

    async def whatif(self, request: Request) -> Response:
        """What would become of pods if they came now, in this order."""
        if unready := self._unready():
            return unready
        return await answered(request, self._what_if(await request.body()))

    async def _what_if(self, body: bytes) -> Response:
        try:
            question = await self._questions.question(body)
        except WireError as error:
            return _json(ErrorView(str(error)), 400)
        except KubeError as error:
            return _json(ErrorView(f"the claims of the pods cannot be read: {error}"), 503)
        slices = TimeSlices()
        try:
            found = await self._questions.what_if(question, slices)
        except WireError as error:
            return _json(ErrorView(str(error)), 503)
        return await _long(found, slices)

    def _unready(self) -> Response | None:
        obstacle = self._health.obstacle()
        return _json(ErrorView(obstacle), 503) if obstacle else None


_GONE: Final = Response(status_code=499)
"""Nobody receives it."""


async def answered(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The reply to a question, while its client is there and not too many others wait."""
    try:
        return await while_connected(request, work)
    except TooManyQuestionsError as error:
        reply = _json(ErrorView(str(error)), 503)
        reply.headers["Retry-After"] = str(RETRY_SECONDS)
        return reply
    except ClientGoneError:
        return _GONE


def _answers(good: type) -> dict[int | str, dict[str, Any]]:
    return openapi.answers({200: good, 404: ErrorView, 503: ErrorView})


async def _long(view: msgspec.Struct, slices: TimeSlices) -> Response:
    return Response(await encoded(view, slices), media_type=JSON)


def _json(view: msgspec.Struct, status: int = 200) -> Response:
    return Response(messages.encode(view), status_code=status, media_type=JSON)
