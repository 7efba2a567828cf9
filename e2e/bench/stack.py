"""What places the pods of a measurement: kube-scheduler, the extender, and the webhook."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec

from bench import admission
from bench.subject import PREFIX, Subject
from environments.apicall import ApiCalls
from environments.controlplane import BURST_SUFFIX, ControlPlane
from environments.processes import free_port

POLICY_PROFILE: Final[Mapping[str, Any]] = {
    "plugins": {
        "score": {
            "disabled": [
                {"name": name}
                for name in (
                    "NodeResourcesFit",
                    "NodeResourcesBalancedAllocation",
                    "ImageLocality",
                )
            ]
        }
    },
    "pluginConfig": [
        {
            "name": "PodTopologySpread",
            "args": {"defaultingType": "List", "defaultConstraints": []},
        }
    ],
}
"""As the chart's."""


class Stack(msgspec.Struct, frozen=True):
    """One way to place pods.

    Attributes:
        flags: of the extender; ``None`` runs kube-scheduler alone.
        percentage: of the nodes that kube-scheduler evaluates; 0 is its default.
        profile: fields of the scheduler's profile.
        webhooks: number of processes that review pods.
        burst_pods: number of pending pods above which the webhook chooses a second profile, which
            evaluates 100 nodes; 0 never.
    """

    flags: tuple[str, ...] | None = None
    percentage: int = 0
    profile: Mapping[str, Any] = {}
    webhooks: int = 0
    burst_pods: int = 0


DEFAULT: Final = Stack((), 100, POLICY_PROFILE, webhooks=1, burst_pods=32)
"""The chart's, with one webhook."""


@asynccontextmanager
async def running(
    plane: ControlPlane, calls: ApiCalls, stack: Stack, name: str
) -> AsyncIterator[tuple[Mapping[str, int], str]]:
    """All of it, and the control plane; process ids, and the scheduler that new pods name.

    Args:
        name: of the scheduler's first profile.
    """
    port = free_port()
    flags = [*(stack.flags or ()), f"--webhook-scheduler={name}"]
    profiles = [stack.profile]
    if stack.burst_pods:
        flags += [f"--burst-scheduler={name}{BURST_SUFFIX}", f"--burst-pods={stack.burst_pods}"]
        profiles += [{**stack.profile, "percentageOfNodesToScore": 1}]
    like = {"profiles": profiles, "percentageOfNodesToScore": stack.percentage}
    url = None if stack.flags is None else f"http://127.0.0.1:{port}{PREFIX}"
    async with AsyncExitStack() as ends:
        pids = dict(plane.pids())
        if url:
            extender = await asyncio.to_thread(Subject.ours, plane, flags, port=port)
            ends.callback(extender.stop)
            pids |= extender.pids()
        scheduler = await asyncio.to_thread(partial(plane.scheduler, url, name=name, like=like))
        ends.callback(scheduler.stop)
        pids["kube-scheduler"] = scheduler.pid
        if not stack.webhooks:
            yield pids, name
            return
        hooks = admission.webhooks(plane, calls, flags, scheduler=name, count=stack.webhooks)
        yield pids | dict(await ends.enter_async_context(hooks)), admission.UNNAMED
