"""Reads kubelet's allocations from its PodResources API."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc.aio

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.wire.names import Names
from gpudeviceplugin.kubelet.endpoint import kubelet_channel, socket_identity
from gpudeviceplugin.proto import podresources_pb2 as api
from gpudeviceplugin.rpc import caller

LIST_SECONDS: Final = 5.0
RECEIVE_LIMIT_BYTES: Final = 64 * 1024 * 1024
_SERVICE: Final = api.DESCRIPTOR.services_by_name["PodResourcesLister"]


class PodResourcesError(Exception):
    """cannot read kubelet's allocations."""


class PodResourcesClient:
    """kubelet's PodResources service on its own socket.

    Args:
        kubelet_restarted: is called before :meth:`list` returns the first reply of another kubelet
            process. That one serves this socket before the one that plugins register at, and lists
            no pods for about a second.
    """

    def __init__(
        self, socket: Path, names: Names, *, kubelet_restarted: Callable[[], None]
    ) -> None:
        self._socket = socket
        self._kubelet_restarted = kubelet_restarted
        self._kubelet: tuple[int, int] | None = None
        self._resources = {each.full_name(names): each for each in Resource}

    async def list(self) -> list[Held]:
        """What every pod holds of our resources, pods that hold nothing included.

        Raises:
            PodResourcesError: kubelet does not answer, or restarts meanwhile.
        """
        kubelet = socket_identity(self._socket)
        try:
            async with kubelet_channel(self._socket, receive_limit=RECEIVE_LIMIT_BYTES) as channel:
                stub = caller(channel, _SERVICE)
                answer = await stub.List(api.ListPodResourcesRequest(), timeout=LIST_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PodResourcesError(f"{self._socket}: {error.details()}") from error
        if kubelet != socket_identity(self._socket):
            raise PodResourcesError(f"{self._socket}: kubelet restarted during the call")
        if self._kubelet not in {None, kubelet}:
            self._kubelet_restarted()
        self._kubelet = kubelet
        return [self._held(pod) for pod in answer.pod_resources]

    def _held(self, pod: api.PodResources) -> Held:
        containers = {each.name: self._row(each) for each in pod.containers}
        ours = {name: row for name, row in containers.items() if row}
        return Held(pod.namespace, pod.name, ours)

    def _row(self, container: api.ContainerResources) -> dict[Resource, tuple[str, ...]]:
        """Ids by resource; kubelet may list one resource in several parts."""
        row: dict[Resource, tuple[str, ...]] = {}
        for part in container.devices:
            resource = self._resources.get(part.resource_name)
            if resource is not None:
                row[resource] = (*row.get(resource, ()), *part.device_ids)
        return row
