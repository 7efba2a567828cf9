"""The real service in this process, and how a scheduler talks to it."""

import asyncio
import json
from pathlib import Path
from typing import Any, Self

import aiohttp

from gpuextender.service import ExtenderService
from gpuextender.settings import ExtenderSettings
from gpuextender.webhookservice import WebhookService
from gpukube.client import HttpKubeClient
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.waiting import WAIT_SECONDS, until

__all__ = ["WAIT_SECONDS", "Object", "Running", "until"]

Object = dict[str, Any]


class Running:
    """Use as an async context; settings can be given by name."""

    def __init__(self, cluster: FakeApiServer, folder: Path, **settings: Any) -> None:
        self._cluster = cluster
        self.folder = folder
        self._kubeconfig = folder / "kubeconfig"
        self._settings = settings

    async def __aenter__(self) -> Self:
        self._kubeconfig.write_text(self._cluster.kubeconfig())
        self.api = await HttpKubeClient.connect(self._kubeconfig, user_agent="test")
        patient = {"bind_deadline": WAIT_SECONDS, **self._settings}
        settings = ExtenderSettings(port=0, host="127.0.0.1", **patient)
        service = WebhookService if settings.webhook_only else ExtenderService
        self.service: Any = service(self.api, settings)
        self.task = asyncio.create_task(self.service.run())
        listeners = self.service.listeners
        listener = listeners.verbs or listeners.metrics or listeners.admission
        await until("the server listens", lambda: listener.started)
        self.url = f"http://127.0.0.1:{listener.port}"
        self.http = aiohttp.ClientSession(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        self.service.stop()
        await self.task
        await self.api.__aexit__()

    @property
    def state(self) -> Any:
        """What the service knows."""
        return self.service.state

    async def ready(self) -> None:
        """Wait until it takes decisions."""
        await until("ready", lambda: not self.service.health.obstacle())

    async def knows_node(self, name: str) -> None:
        """Wait until the watch brought a node itself; a pod on it may come before."""
        node = self.state.ledger.node
        await until(f"node {name}", lambda: (found := node(name)) and found.present)

    async def knows_pod(self, uid: str) -> None:
        """Wait until the watch brought a bound pod."""
        await until(f"claim of {uid}", lambda: self.state.ledger.allocation(uid))

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        """POST JSON; answers status and decoded body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.post(path, data=data) as reply:
            return reply.status, json.loads(await reply.read())

    async def get(self, path: str) -> tuple[int, str]:
        """GET; answers status and text."""
        async with self.http.get(path) as reply:
            return reply.status, await reply.text()

    async def filter(self, pod: Object, *names: str) -> Object:
        """What the scheduler gets for ``names``."""
        body = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        status, answer = await self.post("/gpushare-scheduler/filter", body)
        assert status == 200
        return answer

    async def bind(self, pod: Object, node: str) -> tuple[int, str]:
        """Status and error of a bind."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        status, answer = await self.post("/gpushare-scheduler/bind", body)
        return status, answer["Error"]
