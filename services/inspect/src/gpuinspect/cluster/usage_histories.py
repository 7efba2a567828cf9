"""Measured memory of workloads: from the device plugins of a cluster, a snapshot or a file.

Each plugin keeps what it measured on its node and serves it at ``/usage-history``; the API server
passes the request on, with the rights of the caller.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpucore.sizing.history_documents import KIND, decode_histories
from gpucore.sizing.usage_history import UsageHistory, merged
from gpucore.wire.errors import WireError
from gpuinspect.cluster.collect import ListRequest
from gpuinspect.cluster.snapshots import ListedObjects, Snapshot
from gpuinspect.errors import SnapshotError
from gpukube.errors import KubeError

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

PATH: Final = "usage-history"
_COMPONENT: Final = "app.kubernetes.io/component"
_PLUGIN: Final = "device-plugin"
PLUGINS: Final = ListRequest("Pod", "/api/v1/pods", {"labelSelector": f"{_COMPONENT}={_PLUGIN}"})
"""The pods of the device plugins."""
_PORT: Final = "metrics"
_AT_ONCE: Final = 8


class ReadHistories(msgspec.Struct, frozen=True):
    """What was read.

    Attributes:
        items: one history for each container of a workload, of all nodes together.
        unread: nodes whose plugin did not answer, with the reason.
    """

    items: tuple[UsageHistory, ...]
    unread: tuple[tuple[str, str], ...] = ()


class _HttpGet(msgspec.Struct):
    scheme: str = ""


class _Probe(msgspec.Struct, rename="camel"):
    http_get: _HttpGet | None = None


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct, rename="camel"):
    ports: list[_Port] | None = None
    liveness_probe: _Probe | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] = []


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Plugin(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Target(NamedTuple):
    """Where the plugin of a node serves its histories."""

    node: str
    namespace: str
    path: str


def of_plugins(kube: "BlockingClient", plugins: Iterable[msgspec.Raw]) -> ReadHistories:
    """The histories of all nodes; a plugin that does not answer is noted.

    Args:
        kube: the API server.
        plugins: the pods of the device plugins.
    """
    found: list[UsageHistory] = []
    unread: list[tuple[str, str]] = []
    targets = _each_node_once(_targets(plugins))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda target: _answer(kube, target), targets)
        for target, answer in zip(targets, answers, strict=True):
            if isinstance(answer, str):
                unread.append((target.node, answer))
            else:
                found += answer
    return ReadHistories(by_workload(found), tuple(unread))


def plugins_in(snapshot: Snapshot) -> Iterator[msgspec.Raw]:
    """The pods of the device plugins among all pods."""
    for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
        if pod.labels.get(_COMPONENT) == _PLUGIN and not pod.finished:
            yield raw


def of_snapshot(snapshot: ListedObjects) -> ReadHistories:
    """Those that were saved among the objects of a snapshot.

    Raises:
        WireError: an object is no list of histories.
    """
    found = [each for raw in snapshot.all(KIND) for each in decode_histories(bytes(raw))]
    return ReadHistories(by_workload(found))


def of_file(path: Path) -> ReadHistories:
    """Those in a file with one document of a plugin on each line.

    Raises:
        SnapshotError: it cannot be read, or has something else.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SnapshotError(f"cannot read the histories in {path}: {error.strerror}") from error
    found: list[UsageHistory] = []
    for number, line in enumerate(lines, start=1):
        try:
            found += decode_histories(line) if line.strip() else []
        except WireError as error:
            raise SnapshotError(
                f"{path}, line {number}: {error}; every line must be the answer of a device plugin"
                f" at /{PATH}"
            ) from error
    return ReadHistories(by_workload(found))


def by_workload(histories: Iterable[UsageHistory]) -> tuple[UsageHistory, ...]:
    """The histories of several nodes as one for each container of a workload, by name."""
    ordered = sorted(histories, key=attrgetter("key"))
    return tuple(reduce(merged, group) for _, group in groupby(ordered, attrgetter("key")))


class _Reporting(msgspec.Struct):
    node: str = ""


def _answer(kube: "BlockingClient", target: _Target) -> list[UsageHistory] | str:
    """The histories of one plugin, which counts for its own node only; or why there are none."""
    try:
        raw = kube.get(target.path)
        found = decode_histories(raw)
    except (KubeError, WireError) as error:
        return str(error)
    reported = msgspec.json.decode(raw, type=_Reporting).node
    return found if reported == target.node else f"it reports another node, {reported!r}"


def _each_node_once(targets: Iterable[_Target]) -> list[_Target]:
    """One plugin a node, all of one namespace: any tenant can create pods with these labels.

    The namespace is the one with the most of them, which is that of the DaemonSet.
    """
    found = sorted(targets, key=attrgetter("node", "path"), reverse=True)
    counts = Counter(each.namespace for each in found)
    if not counts:
        return []
    chosen = min(counts, key=lambda namespace: (-counts[namespace], namespace))
    by_node = {each.node: each for each in found if each.namespace == chosen}
    return [by_node[node] for node in sorted(by_node)]


def _targets(plugins: Iterable[msgspec.Raw]) -> Iterator[_Target]:
    """Each plugin with a port for metrics."""
    for raw in plugins:
        pod = msgspec.json.decode(raw, type=_Plugin)
        for container in pod.spec.containers:
            ports = [p.container_port for p in container.ports or () if p.name == _PORT]
            if ports and pod.spec.node_name:
                where = f"/api/v1/namespaces/{pod.metadata.namespace}/pods"
                name = f"{_scheme(container)}{pod.metadata.name}:{ports[0]}"
                path = f"{where}/{name}/proxy/{PATH}"
                yield _Target(pod.spec.node_name, pod.metadata.namespace, path)


def _scheme(container: _Container) -> str:
    """What the API server takes for a port with TLS, as the probes have it."""
    probe = container.liveness_probe
    tls = probe is not None and probe.http_get is not None and probe.http_get.scheme == "HTTPS"
    return "https:" if tls else ""
