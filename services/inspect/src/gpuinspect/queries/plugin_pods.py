"""The pods of the device plugins among the objects of a cluster."""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpuinspect.cluster.collect import ListRequest
from gpuinspect.cluster.snapshots import Snapshot
from gpukube.plugin_pods import COMPONENT, PLUGIN, SELECTOR

PLUGIN_PODS: Final = ListRequest("Pod", "/api/v1/pods", {"labelSelector": SELECTOR})
"""The pods of the device plugins of the chart."""


def plugins_in(snapshot: Snapshot) -> Iterator[msgspec.Raw]:
    """The pods of the device plugins among all pods."""
    for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
        if pod.labels.get(COMPONENT) == PLUGIN:
            yield raw
