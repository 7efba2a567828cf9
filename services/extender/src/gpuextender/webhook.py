"""The admission webhook: ``AdmissionReview`` in, verdict out, over TLS.

Optional, and never in the way: the cluster's failure policy for it is Ignore, and what it would
have refused is refused again by filter, only later and less kindly.
"""

import base64
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response

from gpucore.account import NodeAccount
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import VERSION, metrics
from gpuextender.admission import Verdict, judge, judge_debugging
from gpuextender.front import JSON
from gpuextender.health import Health
from gpuextender.messages import NOTHING, MessageError, given
from gpuextender.state import State

PATH: Final = "/admit"


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    namespace: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = NOTHING


class _Review(msgspec.Struct):
    request: _Request


_REVIEW: Final = msgspec.json.Decoder(_Review)


class Webhook:
    """Judges pods against what is known of the cluster.

    Args:
        scheduler: name to give pods of ours; empty to leave them.
    """

    def __init__(self, state: State, health: Health, *, scheduler: str) -> None:
        self._state, self._health, self._scheduler = state, health, scheduler

    def app(self) -> FastAPI:
        """An application of its own, for it listens elsewhere."""
        app = FastAPI(title="gpushare admission", version=VERSION, openapi_url=None)
        app.add_api_route(PATH, self.admit, methods=["POST"])
        return app

    async def admit(self, request: Request) -> Response:
        """Answer one review; 400 where it is none."""
        try:
            review = self.answer(await request.body())
        except MessageError as error:
            return Response(str(error), status_code=400)
        return Response(msgspec.json.encode(review), media_type=JSON)

    def answer(self, body: bytes) -> dict[str, Any]:
        """The review with its response.

        Raises:
            MessageError: the body is no review of a pod.
        """
        try:
            asked = _REVIEW.decode(body).request
            verdict = self._judge(asked)
        except (msgspec.MsgspecError, UnicodeDecodeError, WireError) as error:
            raise MessageError(f"cannot decode AdmissionReview: {error}") from error
        metrics.ADMISSIONS.labels(_result(verdict)).inc()
        return {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": asked.uid, **_response(verdict)},
        }

    def _judge(self, asked: _Request) -> Verdict:
        if not given(asked.object):
            return Verdict()
        pod, names = decode_pod(asked.object), self._state.names
        if asked.sub_resource:
            return judge_debugging(pod, namespace=asked.namespace, names=names)
        return judge(
            pod,
            namespace=asked.namespace,
            accounts=self._accounts(),
            names=names,
            scheduler=self._scheduler,
        )

    def _accounts(self) -> Iterable[NodeAccount]:
        """Books to compare with; none while they cannot be trusted."""
        return () if self._health.obstacle() else self._state.ledger.nodes().values()


def _result(verdict: Verdict) -> str:
    if verdict.refusal:
        return "refused"
    return "steered" if verdict.scheduler else "passed"


def _response(verdict: Verdict) -> dict[str, Any]:
    if verdict.refusal:
        text = f"gpushare: {verdict.refusal}"
        return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": text}}
    response: dict[str, Any] = {"allowed": True}
    if verdict.warning:
        response["warnings"] = [verdict.warning]
    if verdict.scheduler:
        change = [{"op": "add", "path": "/spec/schedulerName", "value": verdict.scheduler}]
        patch = base64.b64encode(msgspec.json.encode(change)).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return response
