"""Collections that the plugin watches: the pods of its node, and its Node."""

from collections.abc import Callable
from typing import Final

from gpucore.wire.lists import Page, decode_node_event, decode_nodes, decode_pod_event, decode_pods
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin import telemetry
from gpukube.watch.collection import Collection, NoObserver

SILENCE_SECONDS: Final = 330.0
"""Bookmarks arrive about once a minute, except on an old API server where nothing happens."""
POD_PAGE: Final = 8
"""Pods in a page: tenants choose their sizes, up to 9 MiB as JSON, and two pages are in memory."""


def pods_of(node: str, listed: Callable[[bytes], object] | None = None) -> Collection[Pod]:
    """The pods of a node, in the order in which kubelet sees them: by its own field selector.

    Args:
        listed: is called with each page of a list, before its pods are handed over.
    """

    def page_of(raw: bytes) -> Page[Pod]:
        page = decode_pods(raw)
        if listed is not None:
            listed(raw)
        return page

    return Collection(
        "pods",
        "/api/v1/pods",
        page_of,
        decode_pod_event,
        {"fieldSelector": f"spec.nodeName={node}"},
        version_path="/api/v1/namespaces/default/pods",
        page_size=POD_PAGE,
    )


def node_named(node: str) -> Collection[Node]:
    """The Node with this name."""
    return Collection(
        "nodes",
        "/api/v1/nodes",
        decode_nodes,
        decode_node_event,
        {"fieldSelector": f"metadata.name={node}"},
        version_path="/api/v1/nodes",
        version_name=node,
    )


class Relists(NoObserver):
    """Counts complete lists."""

    def listed(self, name: str) -> None:
        telemetry.RELISTS.labels(name).inc()
