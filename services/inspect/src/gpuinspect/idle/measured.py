"""What one read of a cluster gave."""

import msgspec

from gpucore.sizing.idle_eviction import MeasuredPod
from gpukube.plugins import PluginAddress


class MeasuredPods(msgspec.Struct, frozen=True):
    """One read of a cluster.

    Attributes:
        pods: those with GPUs, of the chosen namespaces and nodes.
        plugins: the device plugins that were asked, by node.
        note: why memory in use is not all known; empty where it is.
    """

    pods: tuple[MeasuredPod, ...]
    plugins: dict[str, PluginAddress]
    note: str
