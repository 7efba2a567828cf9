"""A control plane with PodGroups, its scheduler with the extender, and groups of pods on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
from planes import Source
from running import Running
from steadyclock import SteadyClock

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane

Object = dict[str, Any]
FEATURES: Final = ("GenericWorkload",)
GROUP_API: Final = "scheduling.k8s.io/v1beta1"
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
GROUPS: Final = f"/apis/{GROUP_API}/namespaces/default/podgroups"
SCHEDULER: Final = "groups"
UNITS: Final = 79
"""Of each GPU."""
WAIT_SECONDS: Final = 60.0
"""On a machine that may stall."""


def group_plane(*more: str, apis: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """A control plane that serves PodGroups.

    Args:
        more: feature gates besides GenericWorkload.
        apis: API versions besides that of PodGroups.
    """
    with control_plane(features=(*FEATURES, *more), apis=(GROUP_API, *apis)) as one:
        yield one


def pod_group(name: str, minimum: int | None, **spec: object) -> Object:
    """A PodGroup; without a minimum it has the basic policy."""
    policy: Object = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    return {
        "apiVersion": GROUP_API,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def member(group: str, number: int, units: int, **options: Any) -> Object:
    """A pod of a group."""
    item = fakenodes.pod(f"{group}-{number}", units, scheduler=SCHEDULER, **options)
    item["spec"]["schedulingGroup"] = {"podGroupName": group}
    item["metadata"]["labels"] = {"group": group}
    return item


class GroupCluster:
    """Pods and groups of one control plane."""

    def __init__(self, calls: ApiCalls, extender: Running) -> None:
        self.calls, self.extender = calls, extender

    async def create_group(
        self, name: str, minimum: int | None, *sizes: int, priority: str = ""
    ) -> None:
        """A PodGroup and its pods, of ``sizes`` units each."""
        classed = {"priorityClassName": priority} if priority else {}
        await self.calls.call("POST", GROUPS, pod_group(name, minimum, **classed))
        pods = [member(name, number, size) for number, size in enumerate(sizes)]
        for item in pods:
            item["spec"].update(classed)
        await self.add(*pods)

    async def priority_class(self, name: str, value: int) -> None:
        """A PriorityClass; one that exists stays."""
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        body = head | {"metadata": {"name": name}, "value": value}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await self.calls.call("POST", path, body, fine=(201, 409))

    async def add(self, *pods: Object) -> None:
        """Create pods."""
        for item in pods:
            await self.calls.call("POST", PODS, item)

    async def delete(self, name: str) -> None:
        """Delete a pod at once."""
        path = f"{PODS}/{name}?gracePeriodSeconds=0"
        await self.calls.call("DELETE", path, fine=(200, 202, 404))

    async def pods(self) -> list[Object]:
        """All pods."""
        found: list[Object] = msgspec.json.decode(await self.calls.call("GET", PODS))["items"]
        return found

    async def bound(self, group: str) -> dict[str, str]:
        """The nodes of the pods of a group that have one."""
        return {
            item["metadata"]["name"]: item["spec"]["nodeName"]
            for item in await self.pods()
            if item["metadata"].get("labels", {}).get("group") == group
            and item["spec"].get("nodeName")
        }

    async def refused(self, group: str) -> str:
        """Wait until the scheduler has tried a group in vain; the message of the group."""
        path = f"{GROUPS}/{group}"
        end = monotonic() + WAIT_SECONDS
        while monotonic() < end:
            found = msgspec.json.decode(await self.calls.call("GET", path))
            for one in found.get("status", {}).get("conditions", ()):
                if one["status"] == "False":
                    return str(one["message"])
            await asyncio.sleep(0.05)
        raise AssertionError(f"PodGroup {group} was never tried")

    async def until_bound(self, group: str, count: int, seconds: float = WAIT_SECONDS) -> float:
        """Seconds of a steady clock until ``count`` pods of a group are bound."""
        clock = SteadyClock()
        while (found := len(await self.bound(group))) < count:
            if clock.tick() > seconds:
                raise AssertionError(f"{found} of {count} pods of {group} are bound")
            await asyncio.sleep(0.05)
        return clock.tick()

    async def until_some_group(self, groups: Sequence[str], count: int, seconds: float) -> None:
        """Wait until ``count`` pods of one of the groups are bound, by a steady clock."""
        clock = SteadyClock()
        while clock.tick() < seconds:
            for name in groups:
                if len(await self.bound(name)) >= count:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"none of {groups} has {count} bound pods after {seconds} s")

    async def double(self) -> list[str]:
        """GPUs of which more is given than they have."""
        return [gpu for gpu, units in (await self.used()).items() if units > UNITS]

    async def used(self) -> dict[str, int]:
        """Units that are given, by node and GPU."""
        used: dict[str, int] = {}
        for item in await self.pods():
            notes = item["metadata"].get("annotations", {})
            if item["spec"].get("nodeName"):
                gpu = f"{item['spec']['nodeName']}/{notes['ALIYUN_COM_GPU_MEM_IDX']}"
                used[gpu] = used.get(gpu, 0) + int(notes["ALIYUN_COM_GPU_MEM_POD"])
        return used

    async def clear(self) -> None:
        """Delete all pods and groups."""
        for path in (PODS, GROUPS):
            listed = msgspec.json.decode(await self.calls.call("GET", path))["items"]
            for item in listed:
                name = item["metadata"]["name"]
                if item["metadata"].get("finalizers"):
                    await self._unprotect(path, name)
                await self.calls.call(
                    "DELETE", f"{path}/{name}?gracePeriodSeconds=0", fine=(200, 202, 404)
                )

    async def _unprotect(self, path: str, name: str) -> None:
        patch = {"metadata": {"finalizers": None}}
        kind = "application/merge-patch+json"
        await self.calls.call("PATCH", f"{path}/{name}", patch, kind=kind, fine=(200, 404))


@asynccontextmanager
async def group_cluster(
    plane: ControlPlane, folder: Path, nodes: Iterable[Object], **settings: Any
) -> AsyncIterator[GroupCluster]:
    """These nodes, an extender, and a scheduler; all objects are deleted in the end."""
    async with ApiCalls.to(plane) as calls:
        listed = list(nodes)
        await calls.create(NODES, listed)
        async with Running(Source(plane), folder, bind_deadline=30, **settings) as extender:
            await extender.ready()
            for item in listed:
                await extender.knows_node(item["metadata"]["name"])
            url = f"{extender.url}/gpushare-scheduler"
            process = await asyncio.to_thread(plane.scheduler, url, name=SCHEDULER)
            cluster = GroupCluster(calls, extender)
            try:
                yield cluster
            finally:
                await asyncio.to_thread(process.stop)
                await cluster.clear()
                for item in listed:
                    await calls.call("DELETE", f"{NODES}/{item['metadata']['name']}")


async def always(check: Callable[[], Any], seconds: float) -> None:
    """``check``, again and again for some seconds; it raises where something is wrong."""
    end = monotonic() + seconds
    while monotonic() < end:
        await check()
        await asyncio.sleep(0.1)
