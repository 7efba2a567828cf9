"""kubelet and device plugin of all fake nodes, as the API server sees them: bound pods run or fail.

This is the half of a kubelet that talks to the API server. The half that talks gRPC to a device
plugin is :mod:`hardware.fakedevicemanager` for figures, and the plugin's own tests have one that
can misbehave (``services/deviceplugin/tests/fakekubelet``). They share no line: this one has no
devices. It enforces what matters to a scheduler: the pods on a GPU never hold more units than the
GPU has. A pod that would exceed them fails, as kubelet fails an admission.
"""

import asyncio
from collections import defaultdict
from typing import Any, Self

import msgspec

from environments.apicall import MERGE_PATCH, ApiCalls

IDX = "ALIYUN_COM_GPU_MEM_IDX"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
GPU_MEM = "aliyun.com/gpu-mem"


class PodAdmissionError(Exception):
    """A pod could not be admitted."""


class FakeNodeAgent:
    """Admits each pod bound to a node once; use as ``async with FakeNodeAgent(calls, units)``.

    Args:
        calls: to the API server.
        units: of every GPU.

    Attributes:
        admitted: names of pods that now run.
        refused: names of pods that were failed, because their GPU was full.
        used: units held, by (node, GPU).
    """

    def __init__(self, calls: ApiCalls, units: int) -> None:
        self.calls = calls
        self.units = units
        self.admitted: set[str] = set()
        self.refused: set[str] = set()
        self.used: dict[tuple[str, str], int] = defaultdict(int)
        self._changed = asyncio.Condition()
        self._work: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: set[str] = set()
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        """Start watching from now on; pods that are bound already are taken as they are."""
        listed = msgspec.json.decode(await self.calls.call("GET", "/api/v1/pods"))
        for item in listed["items"]:
            if item["spec"].get("nodeName"):
                self._seen.add(item["metadata"]["uid"])
                self._book(item)
        version = listed["metadata"]["resourceVersion"]
        self._tasks = [asyncio.create_task(self._watch(version))]
        self._tasks += [asyncio.create_task(self._admit()) for _ in range(8)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; what was admitted stays admitted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait(self, count: int, *, seconds: float) -> None:
        """Return when ``count`` pods were admitted.

        Raises:
            TimeoutError: after the deadline.
            PodAdmissionError: the API server refused a write of this kubelet.
        """
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: self._error or len(self.admitted) >= count)
        if self._error is not None:
            raise PodAdmissionError(str(self._error)) from self._error

    async def _watch(self, version: str) -> None:
        path = f"/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=3600"
        async with self.calls.session.get(path, timeout=None) as stream:
            async for line in stream.content:
                event = msgspec.json.decode(line)
                item = event["object"]
                uid = item["metadata"]["uid"]
                bound = event["type"] in {"ADDED", "MODIFIED"} and item["spec"].get("nodeName")
                if bound and uid not in self._seen:
                    self._seen.add(uid)
                    await self._work.put((item, self._book(item)))

    def _book(self, item: Any) -> bool:
        gpu = item["metadata"].get("annotations", {}).get(IDX, "?")
        key = item["spec"]["nodeName"], gpu
        limits = (c["resources"].get("limits", {}) for c in item["spec"]["containers"])
        wanted = sum(int(limit.get(GPU_MEM, 0)) for limit in limits)
        if gpu == "?" or self.used[key] + wanted > self.units:
            return False
        self.used[key] += wanted
        return True

    async def _admit(self) -> None:
        while True:
            item, fits = await self._work.get()
            try:
                await self._write(item, fits=fits)
            except Exception as error:
                self._error = error
                raise
            finally:
                async with self._changed:
                    self._changed.notify_all()

    async def _write(self, item: Any, *, fits: bool) -> None:
        meta = item["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        phase = {"phase": "Running" if fits else "Failed"}
        await self.calls.call("PATCH", f"{path}/status", {"status": phase}, kind=MERGE_PATCH)
        if fits:
            note = {"metadata": {"annotations": {ASSIGNED: "true"}}}
            await self.calls.call("PATCH", path, note, kind=MERGE_PATCH)
        (self.admitted if fits else self.refused).add(meta["name"])
