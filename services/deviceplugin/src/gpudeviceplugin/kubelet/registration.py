"""Registers the plugin: at start, after a kubelet restart, when the node's labels change.

kubelet does not announce a restart; it creates its socket again and deletes the plugin's. The
plugin watches the directory for both, and checks periodically in case a notification was lost.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import structlog

from gpucore.node.allocation.device_ids import Resource
from gpudeviceplugin.kubelet.directory_watch import changes
from gpudeviceplugin.kubelet.endpoint import (
    KUBELET_SOCKET,
    Endpoint,
    RegistrationError,
    socket_identity,
)

log = structlog.get_logger()

LOOK_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0


class ServingCallback(Protocol):
    """Receives whether kubelet hands out this plugin's devices."""

    def __call__(self, *, serving: bool) -> None:
        """Take the new state."""


class Registrar:
    """The sockets of this node."""

    def __init__(
        self,
        directory: Path,
        make: Callable[[Resource], Endpoint],
        *,
        kubelet_restarted: Callable[[], None],
        on_serving: ServingCallback,
    ) -> None:
        self._directory = directory
        self._make = make
        self._kubelet_restarted = kubelet_restarted
        self._on_serving = on_serving
        self._wanted: frozenset[Resource] = frozenset()
        self._serving: dict[Resource, Endpoint] = {}
        self._kubelet: tuple[int, int] | None = None
        self._refused: tuple[int, int] | None = None
        self._anew = False
        self._kick = asyncio.Event()
        self.registered = asyncio.Event()

    def want(self, resources: Collection[Resource]) -> None:
        """Serve these resources from now on, and no others."""
        if frozenset(resources) != self._wanted:
            self._wanted = frozenset(resources)
            self._kick.set()

    def again(self) -> None:
        """Register everything anew (SIGHUP)."""
        self._anew = True
        self._kick.set()

    async def run(self) -> None:
        """Follow kubelet and the wanted resources until cancelled."""
        watcher = asyncio.create_task(self._watch())
        try:
            while True:
                self._kick.clear()
                done = await self._settle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS if done else RETRY_SECONDS):
                        await self._kick.wait()
        finally:
            watcher.cancel()
            await asyncio.gather(*(each.stop() for each in self._serving.values()))

    async def _watch(self) -> None:
        """Look at each change, but for those that a refused registration makes itself.

        It creates and removes sockets in the directory: without the pause it would follow itself.
        """
        async for _ in self._notices():
            if socket_identity(self._directory / KUBELET_SOCKET) != self._refused:
                self._kick.set()

    async def _notices(self) -> AsyncIterator[None]:
        while True:
            try:
                async for _ in changes(self._directory):
                    yield None
            except OSError as error:  # the directory may not be there yet
                log.warning("cannot watch kubelet's directory", why=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _settle(self) -> bool:
        """Make what is served equal what is wanted; false when it has to be tried again."""
        for resource in set(self._serving) - self._wanted:
            await self._serving[resource].withdraw()
            del self._serving[resource]
        kubelet = socket_identity(self._directory / KUBELET_SOCKET)
        if kubelet is None:
            return False
        if kubelet != self._kubelet and self._kubelet is not None:
            log.info("kubelet restarted")
            self._kubelet_restarted()
        anew, self._anew = self._anew, False
        fresh = anew or kubelet != self._kubelet
        lost = [each for each in self._serving.values() if fresh or _is_lost(each)]
        new = [self._make(resource) for resource in self._wanted - set(self._serving)]
        done = await self._start([*lost, *new], kubelet)
        self._anew |= anew and not done
        return done

    async def _start(self, endpoints: list[Endpoint], kubelet: tuple[int, int]) -> bool:
        try:
            for endpoint in endpoints:
                await endpoint.start()
                self._serving[endpoint.resource] = endpoint
        except RegistrationError as error:
            self._refused = kubelet
            self.registered.clear()
            self._on_serving(serving=False)
            log.warning("cannot register with kubelet", why=str(error))
            return False
        self._kubelet, self._refused = kubelet, None
        if self._wanted:
            self.registered.set()
            self._on_serving(serving=True)
        return True


def _is_lost(endpoint: Endpoint) -> bool:
    """Its socket was removed, or kubelet has dropped it."""
    if not endpoint.socket.exists():
        return True
    if endpoint.dropped():
        log.warning("kubelet has dropped the registration", resource=endpoint.resource)
        return True
    return False
