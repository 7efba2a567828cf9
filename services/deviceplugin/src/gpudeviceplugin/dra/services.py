"""The gRPC services that kubelet calls: DRAPlugin of API version v1.

An error concerns one claim. The call as a whole never fails, because kubelet would take that for
an error of all claims in it.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import grpc.aio
import structlog

from gpucore.node.claims.prepare import ClaimError
from gpucore.node.claims.prepared import PreparedClaim, PreparedDevice
from gpucore.wire.names import API_CLAIMS
from gpudeviceplugin import telemetry
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.proto import dra_v1_pb2 as api
from gpukube.errors import KubeError

log = structlog.get_logger()

ERROR_LIMIT: Final = 1024
"""Characters of an error: kubelet copies it into an event of the pod."""


_Result = TypeVar("_Result")


class DraServicer:
    """NodePrepareResources and NodeUnprepareResources."""

    def __init__(self, preparer: ClaimPreparer) -> None:
        self._preparer = preparer

    async def NodePrepareResources(  # noqa: N802 - a name of the protocol
        self, request: api.NodePrepareResourcesRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> api.NodePrepareResourcesResponse:
        """Prepare every claim; each has its devices or its error."""
        answer = api.NodePrepareResourcesResponse()
        claims = {claim.uid: claim for claim in request.claims}
        with telemetry.timed("NodePrepareResources", API_CLAIMS):
            results = await asyncio.gather(*(self._prepare(each) for each in claims.values()))
        for uid, result in zip(claims, results, strict=True):
            entry = answer.claims[uid]
            if isinstance(result, str):
                entry.error = result
            else:
                entry.devices.extend(_device(device) for device in result.devices)
        return answer

    async def NodeUnprepareResources(  # noqa: N802 - a name of the protocol
        self,
        request: api.NodeUnprepareResourcesRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> api.NodeUnprepareResourcesResponse:
        """Unprepare every claim; each has an entry."""
        answer = api.NodeUnprepareResourcesResponse()
        with telemetry.timed("NodeUnprepareResources", API_CLAIMS):
            for uid in {claim.uid: None for claim in request.claims}:
                result = await _outcome("unprepare", uid, self._preparer.unprepare(uid))
                answer.claims[uid].error = result if isinstance(result, str) else ""
        return answer

    async def _prepare(self, claim: api.Claim) -> PreparedClaim | str:
        work = self._preparer.prepare(claim.namespace, claim.name, claim.uid)
        return await _outcome("prepare", claim.uid, work)


def _device(device: PreparedDevice) -> api.Device:
    return api.Device(
        request_names=[device.request],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_devices,
        share_id=device.share_id or None,
    )


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
