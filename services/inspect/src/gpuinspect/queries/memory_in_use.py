"""GPU memory in use without Prometheus: which plugins to read, and what their replies mean."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.usage import NO_FIGURES, Figures
from gpuinspect.sources.plugins import PluginAddress, PluginUsage, read_plugins

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

_COMPONENT: Final = "app.kubernetes.io/component"
_PLUGIN: Final = "device-plugin"
_PORT: Final = "metrics"
RIGHT: Final = "the right to get pods/proxy in namespace {} is missing"
NO_PLUGIN: Final = (
    "memory in use is unknown: no device plugin of this version runs; give --prometheus URL"
)
NO_PODS: Final = (
    "memory in use is unknown: the pods of the device plugin cannot be listed; "
    "give --prometheus URL"
)
IN_A_SNAPSHOT: Final = (
    "memory in use is unknown: a snapshot does not have it; give --prometheus URL"
)


class MemoryInUse(msgspec.Struct, frozen=True):
    """Memory in use, and why it is not all known.

    Attributes:
        figures: ``None`` where nothing could be read.
        note: a sentence for people; empty where nothing is missing.
    """

    figures: Figures | None = None
    note: str = ""

    @property
    def known(self) -> Figures:
        """The figures; none where nothing could be read."""
        return self.figures or NO_FIGURES


class _HttpGet(msgspec.Struct):
    scheme: str = "HTTP"


class _Probe(msgspec.Struct, rename="camel"):
    http_get: _HttpGet | None = None


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    ports: list[_Port] | None = None
    readiness_probe: _Probe | None = None


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


def plugin_addresses(snapshot: Snapshot) -> list[PluginAddress]:
    """Where the device plugins of the chart serve their metrics."""
    pairs = zip(snapshot.pods, snapshot.all("Pod"), strict=True)
    return [
        PluginAddress(pod.node, pod.namespace, pod.name, *port)
        for pod, raw in pairs
        if pod.labels.get(_COMPONENT) == _PLUGIN and pod.node and pod.phase == "Running"
        for port in _ports(raw)
    ]


def _ports(raw: msgspec.Raw) -> Iterator[tuple[int, str]]:
    """Port and scheme of the metrics, which are those of the readiness probe."""
    for container in msgspec.json.decode(raw, type=_Pod).spec.containers:
        if container.name == _PLUGIN:
            probe = container.readiness_probe or _Probe()
            scheme = (probe.http_get or _HttpGet()).scheme.lower()
            for port in container.ports or ():
                if port.name == _PORT:
                    yield port.container_port, scheme


def memory_in_use(kube: "BlockingClient", snapshot: Snapshot) -> MemoryInUse:
    """Memory in use as the plugins report it, with the rights of the caller.

    Args:
        kube: the API server.
        snapshot: its pods, those of the plugins among them.
    """
    plugins = plugin_addresses(snapshot)
    if not plugins:
        return MemoryInUse(note=NO_PODS if "Pod" in snapshot.missing else NO_PLUGIN)
    found = read_plugins(kube, plugins)
    if not found.nodes:
        return MemoryInUse(note=_missing(found))
    nodes = {f"{pod.namespace}/{pod.name}": pod.node for pod in snapshot.pods if not pod.finished}
    return MemoryInUse(Figures(found.pods(nodes), found.gpus()), _missing(found))


def _missing(found: PluginUsage) -> str:
    if found.forbidden:
        return (
            f"memory in use is unknown: {RIGHT.format(found.forbidden)}; or give --prometheus URL"
        )
    if not found.failures:
        return ""
    number, node = len(found.failures), min(found.failures)
    nodes = f"node {node}" if number == 1 else f"{number} nodes"
    return (
        f"memory in use of {nodes} is unknown: the device plugin of {node} cannot be read: "
        f"{found.failures[node]}"
    )
