"""The gRPC services that kubelet calls: DRAPlugin in two API versions.

An error concerns one claim. The call as a whole never fails, because kubelet would take that for
an error of all claims in it.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final, Protocol, TypeVar

import grpc.aio
import structlog

from gpucore.node.claims.prepare import ClaimError
from gpucore.node.claims.prepared import PreparedClaim, PreparedDevice
from gpucore.wire.names import API_CLAIMS
from gpudeviceplugin import telemetry
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.proto import dra_v1_pb2, dra_v1beta1_pb2
from gpukube.errors import KubeError

log = structlog.get_logger()

ERROR_LIMIT: Final = 1024
"""Characters of an error: kubelet copies it into an event of the pod."""


_Result = TypeVar("_Result")


class _Claim(Protocol):
    namespace: str
    name: str
    uid: str


class _Request(Protocol):
    @property
    def claims(self) -> Iterable[_Claim]: ...


class DraServicer:
    """NodePrepareResources and NodeUnprepareResources with the messages of one API version."""

    def __init__(self, preparer: ClaimPreparer, messages: Any, *, share_ids: bool) -> None:
        self._preparer = preparer
        self._messages = messages
        self._share_ids = share_ids

    async def NodePrepareResources(  # noqa: N802 - a name of the protocol
        self, request: _Request, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """Prepare every claim; each has its devices or its error."""
        answer = self._messages.NodePrepareResourcesResponse()
        claims = {claim.uid: claim for claim in request.claims}
        with telemetry.timed("NodePrepareResources", API_CLAIMS):
            results = await asyncio.gather(*(self._prepare(each) for each in claims.values()))
        for uid, result in zip(claims, results, strict=True):
            entry = answer.claims[uid]
            if isinstance(result, str):
                entry.error = result
            else:
                entry.devices.extend(self._device(device) for device in result.devices)
        return answer

    async def NodeUnprepareResources(  # noqa: N802 - a name of the protocol
        self, request: _Request, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """Unprepare every claim; each has an entry."""
        answer = self._messages.NodeUnprepareResourcesResponse()
        with telemetry.timed("NodeUnprepareResources", API_CLAIMS):
            for uid in {claim.uid: None for claim in request.claims}:
                result = await _outcome("unprepare", uid, self._preparer.unprepare(uid))
                answer.claims[uid].error = result if isinstance(result, str) else ""
        return answer

    async def _prepare(self, claim: _Claim) -> PreparedClaim | str:
        work = self._preparer.prepare(claim.namespace, claim.name, claim.uid)
        return await _outcome("prepare", claim.uid, work)

    def _device(self, device: PreparedDevice) -> Any:
        message = self._messages.Device(
            request_names=[device.request],
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_devices,
        )
        if self._share_ids and device.share_id:
            message.share_id = device.share_id
        return message


async def _outcome(what: str, uid: str, work: Awaitable[_Result]) -> _Result | str:
    """The result, or the error as text."""
    try:
        return await work
    except (ClaimError, KubeError, OSError) as error:
        telemetry.CLAIM_FAILURES.labels(what).inc()
        log.warning("claim failed", step=what, claim=uid[:64], why=str(error))
        return (str(error) or type(error).__name__)[:ERROR_LIMIT]
    except Exception as error:
        telemetry.CLAIM_FAILURES.labels(what).inc()
        log.exception("claim failed", step=what, claim=uid[:64])
        return f"unexpected {type(error).__name__}: see the log of the device plugin"


def dra_v1(preparer: ClaimPreparer) -> DraServicer:
    """The service of API version v1."""
    return DraServicer(preparer, dra_v1_pb2, share_ids=True)


def dra_v1beta1(preparer: ClaimPreparer) -> DraServicer:
    """The service of API version v1beta1, whose devices have no share ID."""
    return DraServicer(preparer, dra_v1beta1_pb2, share_ids=False)
