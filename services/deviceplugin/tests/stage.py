"""A node on stage: fake cluster, fake kubelet, fake GPUs, and the real plugin between them."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from fakecluster import objects
from fakedriver import FakeDriver, t4
from fakekubelet.kubelet import FakeKubelet

from gpudeviceplugin.plugin import Plugin
from gpudeviceplugin.settings import DevicePluginSettings
from gpukube.testing.apiserver import FakeApiServer

SECONDS = 60.0
"""For everything that is waited for; only a test that fails takes so long."""


class Stage:
    """All of it, started together."""

    def __init__(self, root: Path, driver: FakeDriver | None = None, **settings: Any) -> None:
        self.root = root
        self.driver = driver or FakeDriver(t4(0), t4(1))
        self.cluster = FakeApiServer()
        self.kubelet = FakeKubelet(root, self.cluster, seed=7)
        self._settings = settings
        self.plugin: Plugin | None = None
        self._running: asyncio.Task[None] | None = None
        self.labels = {"gpushare": "true"}
        self.kubelet_starts_late = False

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        self.cluster.nodes.put(objects.node("n1", self.labels))
        if not self.kubelet_starts_late:
            await self.kubelet.start()
        await self.start_plugin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_plugin()
        await self.kubelet.stop()
        await self.cluster.__aexit__()

    async def start_plugin(self) -> None:
        """Start the plugin's process, as a task."""
        settings = DevicePluginSettings(
            **{
                "node_name": "n1",
                "kubelet_dir": self.kubelet.directory,
                "pod_resources_socket": self.kubelet.pod_resources,
                "kubeconfig": self.cluster.write_kubeconfig(self.root),
                "listen_host": "127.0.0.1",
                "listen_port": 0,
                "probe_seconds": 0.05,
                "reconcile_seconds": 0.5,
                "refresh_seconds": 0.5,
                "match_patience": 5.0,  # a busy machine may be late with the watch
                **self._settings,
            }
        )
        self.plugin = await Plugin.make(settings, self.driver)
        self._running = asyncio.create_task(self.plugin.run())

    async def stop_plugin(self, *, planned: bool = False) -> None:
        """End it as SIGTERM would where that is planned, else as SIGKILL."""
        if self._running is None or self.plugin is None:
            return
        if planned:
            await self.plugin.drain()
        self._running.cancel()
        await asyncio.wait({self._running})
        await self.plugin.close()
        if not self._running.cancelled():
            self._running.result()
        self._running = None

    async def informed(self) -> None:
        """Wait until the plugin has listed the node's pods and kubelet's allocations."""
        assert self.plugin is not None
        async with asyncio.timeout(SECONDS):
            await self.plugin._pods.synced.wait()
            await self.plugin._reconciler.synced.wait()

    async def offered(self, count: int, resource: str = "aliyun.com/gpu-mem") -> None:
        """Until kubelet counts so many healthy devices."""
        await self.kubelet.wait_for(
            lambda: len(self.kubelet.manager.healthy.get(resource, ())) == count
        )

    async def eventually(self, predicate: Callable[[], Any], what: str = "") -> None:
        """Until something is true of the cluster; fails with what it waited for."""
        stores = self.cluster.stores.values()
        try:
            async with asyncio.timeout(SECONDS):
                while not predicate():
                    versions = [store.version for store in stores]
                    waits = [
                        asyncio.create_task(store.wait_beyond(version))
                        for store, version in zip(stores, versions, strict=True)
                    ]
                    await asyncio.wait(waits, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
                    for wait in waits:
                        wait.cancel()
        except TimeoutError:
            raise AssertionError(f"never: {what or predicate}") from None

    def label(self, **labels: str) -> None:
        """The node has these labels from now on."""
        node = self.node()
        metadata = node["metadata"] | {"labels": labels}
        self.cluster.nodes.put(node | {"metadata": metadata})

    def create(self, name: str, *containers: dict[str, int], **more: Any) -> None:
        """A bound pod appears."""
        self.cluster.pods.put(objects.pod(name, containers, **more))

    async def admitted(self, name: str) -> None:
        """Until the pod runs."""
        await self.kubelet.wait_for(lambda: self.kubelet.admitted(name))

    async def rejected(self, name: str) -> str:
        """Until the pod was turned away; returns the sentence."""
        await self.kubelet.wait_for(lambda: name in self.kubelet.rejected)
        return self.kubelet.rejected[name]

    def annotations(self, name: str) -> dict[str, str]:
        """Annotations of a pod."""
        found: dict[str, str] = self.cluster.pods.objects["default", name]["metadata"][
            "annotations"
        ]
        return found

    def node(self) -> dict[str, Any]:
        """The node object."""
        return self.cluster.nodes.objects["", "n1"]

    def inventory(self) -> dict[str, Any]:
        """The published inventory; without any GPU before there is one.

        Another task publishes than the one that registers with kubelet: wait for what it reports.
        """
        text = self.node()["metadata"]["annotations"].get("gpushare/inventory", '{"gpus": []}')
        found: dict[str, Any] = json.loads(text)
        return found

    def gpus(self, *fields: str) -> list[tuple[Any, ...]]:
        """These fields of every GPU of the published inventory."""
        return [tuple(gpu[field] for field in fields) for gpu in self.inventory()["gpus"]]

    def gpus_of(self, name: str) -> set[int]:
        """GPUs on which a pod's memory devices really are."""
        gpus = {gpu.uuid: gpu.index for gpu in self.driver.gpus}
        rows = self.kubelet.devices(name).values()
        return {gpus[one.split("-_-")[0]] for ids in rows for one in ids}

    def reasons(self, name: str) -> list[str]:
        """Reasons of the events about an object."""
        events = self.cluster.stores["events"].objects.values()
        return [each["reason"] for each in events if each["involvedObject"]["name"] == name]
