"""The pods of the device plugins, and where they serve their documents."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

COMPONENT: Final = "app.kubernetes.io/component"
PLUGIN: Final = "device-plugin"
SELECTOR: Final = f"{COMPONENT}={PLUGIN}"
"""Labels of the pods of the chart's device plugins."""
_NODE_NAME: Final = "metadata.name"
"""Field of a node by which a DaemonSet assigns its pods."""
_PORT: Final = "metrics"
_KUBELET: Final = "/device-plugins"
"""End of the directory in which kubelet takes device plugins, wherever its root is."""


class PluginAddress(msgspec.Struct, frozen=True, order=True):
    """Where the plugin of a node serves its metrics; ``scheme`` is ``http`` or ``https``.

    A plugin that is not ``running`` serves nothing, and what it measured of its node is missing.
    """

    node: str
    namespace: str
    pod: str
    port: int
    scheme: str = "http"
    running: bool = True

    def path(self, document: str) -> str:
        """Path of a document at the API server."""
        secure = "https:" if self.scheme == "https" else ""
        where = f"/api/v1/namespaces/{self.namespace}/pods/{secure}{self.pod}:{self.port}"
        return f"{where}/proxy/{document}"


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


class _HostPath(msgspec.Struct):
    path: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    host_path: _HostPath | None = None


class _Field(msgspec.Struct):
    key: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_fields: list[_Field] | None = None


class _Required(msgspec.Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct):
    required: _Required | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    affinity: _Affinity | None = None
    containers: list[_Container] = []
    volumes: list[_Volume] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def pods_in(page: bytes) -> list[msgspec.Raw]:
    """The pods in a page of a list."""
    return msgspec.json.decode(page, type=_List).items or []


def plugin_addresses(plugins: Iterable[msgspec.Raw]) -> list[PluginAddress]:
    """Where the device plugins serve their documents, and the nodes whose plugin does not run.

    A pod that does not run, such as one that a rollout replaced, counts only on a node where no
    other one of its namespace runs.

    Any tenant can give a pod the labels of a plugin. Pod Security forbids tenants to mount a
    directory of kubelet, and a pod that does controls its node anyway.
    """
    found = list(_addresses(plugins))
    served = {(each.namespace, each.node) for each in found if each.running}
    return [each for each in found if each.running or (each.namespace, each.node) not in served]


def plugin_namespace(plugins: Iterable[PluginAddress]) -> str:
    """The namespace with the most of them, which is that of the DaemonSet; empty for none.

    Pods that do not run count only where none runs.
    """
    found = list(plugins)
    running = Counter(each.namespace for each in found if each.running)
    counts = running or Counter(each.namespace for each in found)
    return min(counts, key=lambda namespace: (-counts[namespace], namespace), default="")


def mounts_kubelet_sockets(raw: msgspec.Raw) -> bool:
    """A pod mounts the directory in which kubelet takes device plugins, as each of them must."""
    return _sees_kubelet(msgspec.json.decode(raw, type=_Pod).spec)


def _addresses(plugins: Iterable[msgspec.Raw]) -> Iterator[PluginAddress]:
    for raw in plugins:
        pod = msgspec.json.decode(raw, type=_Pod)
        node = pod.spec.node_name or _assigned_node(pod.spec)
        if node and _sees_kubelet(pod.spec):
            named, running = pod.metadata, pod.status.phase == "Running"
            for port, scheme in _ports(pod.spec.containers):
                yield PluginAddress(node, named.namespace, named.name, port, scheme, running)


def _assigned_node(spec: _Spec) -> str:
    """The node that a DaemonSet's pod is for before it is bound; empty for other pods."""
    node = spec.affinity.node_affinity if spec.affinity else None
    terms = (node.required.node_selector_terms if node and node.required else None) or ()
    fields = (each for term in terms for each in term.match_fields or ())
    named = (each.values for each in fields if each.key == _NODE_NAME and each.values)
    return next((values[0] for values in named), "")


def _sees_kubelet(spec: _Spec) -> bool:
    paths = (each.host_path.path for each in spec.volumes or () if each.host_path is not None)
    return any(path.rstrip("/").endswith(_KUBELET) for path in paths)


def _ports(containers: Iterable[_Container]) -> Iterator[tuple[int, str]]:
    """Port and scheme of the metrics, which are those of the readiness probe."""
    for container in containers:
        if container.name == PLUGIN:
            probe = container.readiness_probe or _Probe()
            scheme = (probe.http_get or _HttpGet()).scheme.lower()
            for port in container.ports or ():
                if port.name == _PORT:
                    yield port.container_port, scheme
