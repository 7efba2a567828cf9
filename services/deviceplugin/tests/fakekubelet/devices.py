"""kubelet's device manager, rule by rule: what is taken, reused, requested and written down.

Devices of a resource are sets, and sets have no order: where the real one walks a map, this one
draws lots, so that a plugin cannot lean on an order that is not promised.
"""

import json
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

Ids = set[str]


class AdmissionError(Exception):
    """The pod is turned away: UnexpectedAdmissionError, with the sentence."""


class Plugin:
    """Calls of a registered plugin. Subclassed by the one that speaks gRPC."""

    wants_preference = True
    wants_start = False
    cdi: tuple[str, ...] = ()
    """Devices that the last answer to Allocate named."""

    async def preferred(self, available: Ids, must: Ids, size: int) -> list[str]:
        raise NotImplementedError

    async def call_allocate(self, ids: Ids) -> dict[str, str]:
        raise NotImplementedError

    async def call_start(self, ids: Ids) -> str:
        raise NotImplementedError


class DeviceManager:
    """Devices of one node and who has them."""

    def __init__(self, checkpoint: Path, *, seed: int = 0) -> None:
        self.checkpoint = checkpoint
        self._random = random.Random(seed)
        self.healthy: dict[str, Ids] = {}
        self.plugins: dict[str, Plugin] = {}
        self.pods: dict[str, dict[str, dict[str, Ids]]] = {}
        self.envs: dict[tuple[str, str], dict[str, str]] = {}
        self.cdi: dict[tuple[str, str], list[str]] = {}
        self._reuse: dict[str, dict[str, Ids]] = {}
        self.on_gap: Callable[[], Awaitable[None]] | None = None
        if checkpoint.exists():
            self._load()

    async def admit(self, pod: dict[str, Any], active: Iterable[str]) -> None:
        """Take devices for every container, init containers first.

        Raises:
            AdmissionError: devices are missing or the plugin refused.
        """
        uid = pod["metadata"]["uid"]
        self._drop_inactive({uid, *active})
        self._reuse = {uid: self._reuse.get(uid, defaultdict(set))}
        spec = pod["spec"]
        for container in spec.get("initContainers", []):
            await self._take(uid, container)
            for resource, ids in self._held(uid, container["name"]).items():
                if container.get("restartPolicy") == "Always":
                    self._reuse[uid][resource] -= ids
                else:
                    self._reuse[uid][resource] |= ids
        for container in spec["containers"]:
            await self._take(uid, container)
            for resource, ids in self._held(uid, container["name"]).items():
                self._reuse[uid][resource] -= ids

    def _held(self, uid: str, container: str) -> dict[str, Ids]:
        return self.pods.get(uid, {}).get(container, {})

    def _drop_inactive(self, active: set[str]) -> None:
        self.pods = {uid: held for uid, held in self.pods.items() if uid in active}

    async def _take(self, uid: str, container: dict[str, Any]) -> None:
        limits = list(container["resources"]["limits"].items())
        self._random.shuffle(limits)
        for resource, amount in limits:
            if resource in self.healthy:
                await self._take_resource(uid, container["name"], resource, int(amount))

    async def _take_resource(self, uid: str, container: str, resource: str, size: int) -> None:
        if self._held(uid, container).get(resource):
            return  # restarted container: it keeps what it has
        ids = await self._choose(uid, resource, size)
        envs = await self.plugins[resource].call_allocate(ids)
        if self.on_gap is not None:
            await self.on_gap()
        self.pods.setdefault(uid, {}).setdefault(container, {})[resource] = ids
        self.cdi.setdefault((uid, container), []).extend(self.plugins[resource].cdi)
        known = self.envs.setdefault((uid, container), {})
        for key, value in envs.items():
            if known.setdefault(key, value) != value:
                raise AssertionError(f"{key} has two values: {known[key]!r} and {value!r}")
        self._save()

    async def before_start(self, pod: dict[str, Any]) -> str:
        """Call the plugins that want it before each container; the first refusal."""
        for rows in list(self.pods.get(pod["metadata"]["uid"], {}).values()):
            for resource, ids in rows.items():
                plugin = self.plugins[resource]
                why = await plugin.call_start(ids) if plugin.wants_start else ""
                if why:
                    return why
        return ""

    async def _choose(self, uid: str, resource: str, size: int) -> Ids:
        chosen: Ids = set(self._some(self._reuse[uid][resource], size))
        if len(chosen) == size:
            return chosen
        available = self.healthy[resource] - self._in_use(resource)
        if len(available) < size - len(chosen):
            raise AdmissionError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {size - len(chosen)}, Available: {len(available)}"
            )
        plugin = self.plugins[resource]
        if plugin.wants_preference:
            preferred = await plugin.preferred(available | chosen, set(chosen), size)
            chosen |= set(self._some(set(preferred) & available, size - len(chosen)))
        return chosen | set(self._some(available - chosen, size - len(chosen)))

    def _some(self, ids: Ids, size: int) -> list[str]:
        several = sorted(ids)
        self._random.shuffle(several)
        return several[:size]

    def _in_use(self, resource: str) -> Ids:
        return {
            one
            for containers in self.pods.values()
            for held in containers.values()
            for one in held.get(resource, ())
        }

    def _save(self) -> None:
        plain = {
            uid: {name: {r: sorted(ids) for r, ids in held.items()} for name, held in rows.items()}
            for uid, rows in self.pods.items()
        }
        self.checkpoint.write_text(json.dumps(plain))

    def _load(self) -> None:
        plain = json.loads(self.checkpoint.read_text())
        self.pods = {
            uid: {name: {r: set(ids) for r, ids in held.items()} for name, held in rows.items()}
            for uid, rows in plain.items()
        }
