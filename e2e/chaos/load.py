"""Pods that come and go: shares, two containers, exclusive GPUs, shares with compute.

The generator is the pods' controller too: a pod that its kubelet refused is deleted and another is
created. What it created and has not deleted must be there in every list.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import msgspec

from chaos.invariants import CORE, EXCLUSIVE, MEM
from chaos.objects import Object, pod_object
from environments.apicall import ApiCalls

PODS: Final = "/api/v1/namespaces/default/pods"
PREFIX: Final = "load-"
LARGEST: Final = 10
ROOM_SECONDS: Final = 10.0
"""After this time without new pods a running one makes room for one that waits: a whole GPU may be
requested while every GPU has a share."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
AWAY: Final = (aiohttp.ClientError, OSError, TimeoutError, AssertionError)


class PodLoad:
    """One step at a time: :meth:`step` lists, checks and changes a few pods.

    Args:
        calls: to the API server.
        source: of randomness.
        units: memory units that the pods request together, about.
        pod: creates the object of a pod, as :func:`chaos.objects.pod_object` does.

    Attributes:
        created: number of pods so far.
        refused: number of pods that a kubelet refused, by the first words of its reason.
        lost: sentences about pods that are gone though nobody deleted them.
        pods: the pods of the last list, by name.
    """

    def __init__(
        self,
        calls: ApiCalls,
        source: random.Random,
        *,
        units: int,
        pod: Callable[..., Object] = pod_object,
    ) -> None:
        self._calls, self._random, self._units, self._object = calls, source, units, pod
        self._alive: dict[str, str] = {}
        self._leaving: dict[str, bool] = {}
        self._next: tuple[Object, int] | None = None
        self._sizes: dict[str, int] = {}
        self._pending_since: dict[str, float] = {}
        self.created = 0
        self.completed = 0
        self.refused: Counter[str] = Counter()
        self.refusals: list[str] = []
        self.lost: list[str] = []
        self.pods: Mapping[str, Object] = {}
        self.growing = True

    async def step(self) -> None:
        """One list and one change; nothing happens while the API server is away."""
        try:
            await self._look()
            await self._change()
        except AWAY:
            return

    def waiting(self, seconds: float) -> list[str]:
        """Names of pods that have not run for longer than so many seconds."""
        now = time.monotonic()
        return sorted(name for name, since in self._pending_since.items() if now - since > seconds)

    @property
    def unsettled(self) -> list[str]:
        """Names of pods that are not running, or are being deleted."""
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]
        )

    async def _look(self) -> None:
        page = msgspec.json.decode(await self._calls.call("GET", PODS))
        self.pods = {
            item["metadata"]["name"]: item
            for item in page["items"]
            if item["metadata"]["name"].startswith(PREFIX)
        }
        self._check()
        now = time.monotonic()
        pending = {
            name
            for name, pod in self.pods.items()
            if pod["status"].get("phase", "Pending") == "Pending" and name in self._alive
        }
        self._pending_since = {name: self._pending_since.get(name, now) for name in pending}

    def _check(self) -> None:
        for name, uid in list(self._alive.items()):
            pod = self.pods.get(name)
            if pod is None or pod["metadata"]["uid"] != uid:
                self.lost.append(f"{name} ({uid}) was created and is gone")
                self._forget(name)
        for name in [name for name in self._leaving if name not in self.pods]:
            del self._leaving[name]
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._alive.pop(name, None)
        self._sizes.pop(name, None)

    async def _change(self) -> None:
        for name, force in self._leaving.items():
            if "deletionTimestamp" not in self.pods[name]["metadata"]:
                await self._delete(name, force=force)  # the answer to the first was lost
                return
        for name, pod in self.pods.items():
            if name in self._alive and pod["status"].get("phase") in ENDED:
                self._count(pod)
                await self._delete(name, force=True)
                return
        full = sum(self._sizes.values()) >= self._units
        if self.growing and (not full or self._random.random() < 0.3):
            await self._create()
        makes_room = not self.growing and bool(self.waiting(ROOM_SECONDS))
        leaving = self._alive.keys() - (self._pending_since.keys() if makes_room else set())
        if (full or makes_room) and leaving:
            name = self._random.choice(sorted(leaving))
            await self._delete(name, force=self._random.random() < 0.25)

    def _count(self, pod: Object) -> None:
        if pod["status"]["phase"] == "Succeeded":
            self.completed += 1
            return
        reason = pod["status"].get("message", "") or pod["status"].get("reason", "")
        self.refused[reason.partition(". ")[0][:60]] += 1
        self.refusals.append(
            f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}: {reason}"
        )

    async def _create(self) -> None:
        """One more pod; where the answer was lost, the same one again."""
        if self._next is None:
            self._next = self._pod(f"{PREFIX}{self.created:06}")
        body, size = self._next
        name = body["metadata"]["name"]
        await self._calls.call("POST", PODS, body, fine=(201, 409))
        pod = msgspec.json.decode(await self._calls.call("GET", f"{PODS}/{name}"))
        self._next = None
        self.created += 1
        self._alive[name] = pod["metadata"]["uid"]
        self._sizes[name] = size

    async def _delete(self, name: str, *, force: bool) -> None:
        self._alive.pop(name, None)
        self._leaving[name] = force
        body = {"gracePeriodSeconds": 0} if force else {}
        await self._calls.call("DELETE", f"{PODS}/{name}", body, fine=(200, 202, 404))

    def _pod(self, name: str) -> tuple[Object, int]:
        """A pod and about how many units it takes."""
        draw = self._random
        size = draw.randint(1, LARGEST)
        kind = draw.random()
        containers = [{MEM: size}]
        if kind < 0.15:
            containers = [{MEM: size}, {MEM: max(size // 2, 1)}]
        elif kind < 0.25:
            containers = [{EXCLUSIVE: 1}]
        elif kind < 0.35:
            containers = [{MEM: size, CORE: 5 * size}]
        units = sum(one.get(MEM, 20) for one in containers)
        seconds = draw.randint(2, 15) if draw.random() < 0.3 else 0
        return self._object(name, containers, seconds=seconds), units
