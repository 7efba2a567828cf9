"""Pods on one certain GPU: which policy leads there, and fillers where none does."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpucore.model import ContainerRequest, IsolationMode, PodRequest
from gpucore.wire.names import ENV_VISIBLE_DEVICES, POLICY, Names
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.verify.objects import Object
from gpuinspect.verify.site import PodFailedError, VerifySite
from gpuinspect.verify.targets import ProofTarget, device_now, steering

FILLERS: Final = 16
"""Most pods of one unit that steer the scheduler towards a GPU."""
PLACES: Final = 3
"""Attempts to place a pod: pods of others may come and go between the look and the bind."""
CONFIRM_SECONDS: Final = 30.0
STAY: Final[Mapping[str, Any]] = {"do": "stay", "seconds": 600}
"""The step of a pod that holds its share until it is deleted."""


class GpuPods:
    """The pods of a row, all on the GPU of the target."""

    def __init__(
        self, site: VerifySite, target: ProofTarget, names: Names, read: Callable[[], Snapshot]
    ) -> None:
        self._site, self._target, self._names, self._read = site, target, names, read
        self._live: list[str] = []

    def add(self, name: str) -> None:
        """A pod that goes with the others."""
        self._live.append(name)

    def clear(self) -> None:
        """Delete all pods of the row."""
        while self._live:
            self._site.delete(self._live.pop())

    def disruption(self) -> str:
        """Why somebody ended a pod of the row; empty where nobody did."""
        return next(filter(None, map(self._site.disruption, self._live)), "")

    def start(
        self,
        row: str,
        plan: Sequence[Mapping[str, Any]],
        units: int,
        *,
        core: int = 0,
        annotations: Mapping[str, str] | None = None,
        outside: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Create a pod with a share of the GPU; its name once it has the GPU.

        Raises:
            PodFailedError: it got none, or another one.
        """
        limits = {self._names.gpu_mem: units} | ({self._names.gpu_core: core} if core else {})
        why = ""
        for _ in range(PLACES):
            notes = {POLICY: self._policy(units, core), **(annotations or {})}
            name = self._site.create(
                row, plan, limits, node=self._target.node, annotations=notes, outside=outside
            )
            self._live.append(name)
            if not (why := self._elsewhere(name)):
                return name
            self._site.delete(self._live.pop())
        raise PodFailedError(why)

    def without_share(self, row: str, plan: Sequence[Mapping[str, Any]]) -> str:
        """Create a pod that uses the GPU and requests none of it; its name.

        Raises:
            PodRefusedError: a policy of the cluster refuses it.
        """
        target = self._target
        name = self._site.create(
            row, plan, {}, node=target.node, variables={ENV_VISIBLE_DEVICES: target.uuid}
        )
        self._live.append(name)
        return name

    def _elsewhere(self, name: str) -> str:
        """Which other GPU the scheduler chose; empty for the one of the target."""
        index = _index(self._site.bound(name), self._names)
        if index in {str(self._target.index), ""}:  # a pod without one is the row's to judge
            return ""
        return (
            f"the scheduler put pod {name} on GPU {index}, not on GPU {self._target.index}:"
            " pods of others came or went meanwhile"
        )

    def _policy(self, units: int, core: int) -> str:
        """The policy that leads to the GPU; fillers are created where none does."""
        container = ContainerRequest(mem=units, core=core)
        request = PodRequest((container,), mem=units, core=core, isolation=IsolationMode.NONE)
        for _ in range(FILLERS):
            snapshot = self._read()
            device = device_now(snapshot, self._names, self._target)
            if device is None or not device.healthy:
                raise PodFailedError(f"GPU {self._target.index} is gone, or not healthy any more")
            policy = steering(snapshot, self._names, self._target, request)
            if policy:
                return policy
            self._fill()
        raise PodFailedError(
            f"no placement policy leads to GPU {self._target.index} with {units} units"
        )

    def _fill(self) -> None:
        limits = {self._names.gpu_mem: 1}
        name = self._site.create(
            "filler", (STAY,), limits, node=self._target.node, annotations={POLICY: "spread"}
        )
        self._live.append(name)
        if _index(self._site.bound(name), self._names) == str(self._target.index):
            self._site.delete(self._live.pop())  # the next look finds a policy that leads there

    def confirmed(self, name: str) -> Object:
        """The pod once the plugin has confirmed its GPU, or as it is after a while without that.

        Raises:
            PodFailedError: the plugin corrected the annotation to another GPU.
        """

        def is_confirmed() -> bool:
            notes = self._site.pod(name)["metadata"].get("annotations", {})
            return bool(notes.get(self._names.mem_assigned) == "true")

        try:
            self._site.wait(is_confirmed, f"pod {name} is confirmed", CONFIRM_SECONDS)
        except PodFailedError:
            return self._site.pod(name)
        item = self._site.pod(name)
        if (index := _index(item, self._names)) != str(self._target.index):
            raise PodFailedError(
                f"kubelet allocated GPU {index} where the scheduler chose GPU {self._target.index}"
            )
        return item

    def seconds_to_start(self) -> float:
        """Seconds from the creation of a pod with one unit to the first line of its program."""
        policy = self._policy(1, 0)
        begin = time.monotonic()
        name = self._site.create(
            "start",
            ({"do": "environment"},),
            {self._names.gpu_mem: 1},
            node=self._target.node,
            annotations={POLICY: policy},
        )
        self._live.append(name)
        self._site.wait(lambda: bool(self._site.log(name)), f"pod {name} has begun")
        return time.monotonic() - begin


def _index(item: Object, names: Names) -> str:
    return str(item["metadata"].get("annotations", {}).get(names.mem_idx, ""))
