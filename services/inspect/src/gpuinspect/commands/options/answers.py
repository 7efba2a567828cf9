"""What completion offers for names: contexts of the kubeconfig, and objects of the live cluster.

A shell waits while these run, so that they give up after two seconds and then offer nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuinspect.cluster.collect import ClusterSource, ListRequest, listed
from gpuinspect.errors import FAILURES

SECONDS: Final = 2.0


class _Metadata(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


def contexts(ctx: Any, incomplete: str) -> list[str]:
    """Contexts of the kubeconfig."""
    from gpuinspect.cluster.current_context import current_context  # noqa: PLC0415 - most completions need none

    names = current_context(_source(ctx)).contexts
    return [name for name in names if name.startswith(incomplete)]


def namespaces(ctx: Any, incomplete: str) -> list[str]:
    """Namespaces of the cluster."""
    return _names(ctx, "/api/v1/namespaces", incomplete)


def nodes(ctx: Any, incomplete: str) -> list[str]:
    """Nodes of the cluster."""
    return _names(ctx, "/api/v1/nodes", incomplete)


def pods(ctx: Any, incomplete: str) -> list[str]:
    """Pods of the namespace that ``-n`` or the context names."""
    return _names(ctx, f"/api/v1/namespaces/{_namespace(ctx)}/pods", incomplete)


def workloads(ctx: Any, incomplete: str) -> list[str]:
    """Deployments and StatefulSets of the same namespace, as ``deployment/NAME``."""
    namespace = _namespace(ctx)
    found = []
    for kind in ("deployment", "statefulset"):
        if incomplete.startswith(kind[: len(incomplete)]):
            path = f"/apis/apps/v1/namespaces/{namespace}/{kind}s"
            name = incomplete.partition("/")[2]
            found += [f"{kind}/{each}" for each in _names(ctx, path, name)]
    return found


def _namespace(ctx: Any) -> str:
    from gpukube.kubeconfig.finding import default_namespace  # noqa: PLC0415 - as above

    source = _source(ctx)
    given = ctx.params.get("namespace")
    return given or default_namespace(source.kubeconfig, source.context or "")


def _names(ctx: Any, path: str, incomplete: str) -> list[str]:
    try:
        with _source(ctx).connect() as kube:
            return [name for name in _listed(kube, path) if name.startswith(incomplete)]
    except (*FAILURES, msgspec.MsgspecError, OSError):
        return []


def _listed(kube: Any, path: str) -> Iterator[str]:
    for raw in listed(kube, ListRequest("", path), cached=True):
        yield msgspec.json.decode(raw, type=_Object).metadata.name


def _source(ctx: Any) -> ClusterSource:
    kubeconfig, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
    return ClusterSource(Path(kubeconfig) if kubeconfig else None, context, timeout_seconds=SECONDS)
