"""How kubelet finds the driver: a socket in its directory ``plugins_registry``.

kubelet watches that directory and reads it when it starts, so after a restart of kubelet it
registers the driver again by itself. It deregisters the driver when the socket is removed.
"""

import asyncio
from typing import Any, Final

import grpc.aio
import structlog

from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.proto import pluginregistration_pb2 as api

log = structlog.get_logger()

TYPE: Final = "DRAPlugin"
HEALTH: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The health stream in two API versions with equal messages; kubelet uses the newest it knows."""
SERVICES: Final = ("v1.DRAPlugin", *HEALTH)
"""API versions in kubelet's spelling."""


class RegistrationServicer:
    """GetInfo and NotifyRegistrationStatus.

    Attributes:
        registered: kubelet has accepted the driver.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.registered = asyncio.Event()

    async def GetInfo(  # noqa: N802 - a name of the protocol
        self, _request: api.InfoRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> api.PluginInfo:
        """The name of this driver, its versions and its socket."""
        return api.PluginInfo(
            type=TYPE, name=CLAIM_DRIVER, endpoint=self._endpoint, supported_versions=SERVICES
        )

    async def NotifyRegistrationStatus(  # noqa: N802 - a name of the protocol
        self, request: api.RegistrationStatus, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> api.RegistrationStatusResponse:
        """Whether kubelet accepts the driver."""
        if request.plugin_registered:
            self.registered.set()
            log.info("kubelet registered the DRA driver", driver=CLAIM_DRIVER)
        else:
            self.registered.clear()
            log.warning(
                "kubelet refused the DRA driver", driver=CLAIM_DRIVER, why=request.error[:1024]
            )
        return api.RegistrationStatusResponse()
