"""Whose memory is it? What NVML and the plugin's metrics say of a process that holds some."""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from hardware import nvidiasmi
from hardware.barenode import BareNode
from hardware.compute import whole
from hardware.grants import PublishedGpu
from host.waiting import DeadlineError, until

HELD_MIB: Final = 1024
SEEN_SECONDS: Final = 60.0
MIB: Final = 1024 * 1024
OVERUSED: Final = "GpuMemoryOverused"


def seen(node: BareNode, gpu: PublishedGpu) -> dict[str, Any]:
    """Hold memory in one client and look at what is reported of it.

    Returns:
        ``held_mib``; ``listed_mib``: what nvidia-smi reports of the process; ``others_listed``:
        processes it lists beside (a server of MPS); ``metric_mib``: what the plugin's metrics say
        of the pod once they have all of it. What is not reported in time is None.
    """
    with node.client(whole(node), gpu=gpu.index) as client:
        client.ask("fill", mib=HELD_MIB)
        listed = nvidiasmi.processes(gpu.uuid)
        return {
            "held_mib": HELD_MIB,
            "listed_mib": listed.get(client.pid),
            "others_listed": len(listed.keys() - {client.pid}),
            "metric_mib": _metric(node, client.pod),
        }


def _metric(node: BareNode, pod: str) -> int | None:
    with suppress(DeadlineError):
        return until(
            "the plugin's metrics name the pod's memory",
            lambda: _at_least(HELD_MIB, used_mib(node.metrics(), pod)),
            seconds=SEEN_SECONDS,
        )
    return None


def _at_least(least: int, mib: int) -> int:
    """The metrics follow within some seconds: they may be those of a process that has begun."""
    return mib if mib >= least else 0


def overused(node: BareNode, gpu: PublishedGpu) -> float:
    """Take more than was allocated; seconds until an event on the pod reports it."""
    share = whole(node)
    with node.client(share, gpu=gpu.index) as client:
        client.ask("fill", mib=(share.units + 1) * node.unit_mib)
        begin = time.monotonic()
        until(
            "an event reports the over-use",
            lambda: events(node.events(), client.pod, OVERUSED),
            seconds=SEEN_SECONDS,
        )
        return time.monotonic() - begin


def events(items: Sequence[Mapping[str, Any]], pod: str, reason: str) -> int:
    """How many events on a pod have a reason."""
    return sum(
        item["reason"] == reason and item["involvedObject"].get("name") == pod for item in items
    )


def used_mib(metrics: str, pod: str) -> int:
    """MiB in use by a pod, as the metrics say; 0 if they do not name it."""
    samples = re.findall(r"^gpushare_pod_used_bytes\{([^}]*)\} (\S+)$", metrics, re.MULTILINE)
    mine = [value for labels, value in samples if f'exported_pod="{pod}"' in labels]
    return sum(int(float(value)) for value in mine) // MIB
