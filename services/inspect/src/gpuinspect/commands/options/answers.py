"""What completion offers for names: contexts of the kubeconfig, and objects of the live cluster.

A shell waits while these run. They give up after two seconds in all, whatever the API server or a
credential plugin of the kubeconfig does, and then offer nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import Any, Final

import msgspec

from gpucore.wire.names import LABEL_SERVING_NAME
from gpuinspect.cluster.collect import ClusterSource, ListRequest, listed
from gpuinspect.commands.options.kinds import kind_of
from gpuinspect.errors import FAILURES

SECONDS: Final = 2.0
Names = Callable[[Any, str], list[str]]
_BATCH: Final = frozenset({"job", "cronjob"})


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


def _in_time(look_up: Names) -> Names:
    """Names that are known in time; a thread that is late ends with the process."""

    @wraps(look_up)
    def offered(ctx: Any, incomplete: str) -> list[str]:
        found: list[str] = []

        def look() -> None:
            with suppress(*FAILURES, msgspec.MsgspecError, OSError):
                found.extend(look_up(ctx, incomplete))

        thread = Thread(target=look, daemon=True)
        thread.start()
        thread.join(SECONDS)
        return [] if thread.is_alive() else found

    return offered


@_in_time
def contexts(ctx: Any, incomplete: str) -> list[str]:
    """Contexts of the kubeconfig."""
    from gpuinspect.cluster.current_context import current_context  # noqa: PLC0415 - most completions need none

    names = current_context(_source(ctx)).contexts
    return [name for name in names if name.startswith(incomplete)]


@_in_time
def namespaces(ctx: Any, incomplete: str) -> list[str]:
    """Namespaces of the cluster."""
    return _names(ctx, "/api/v1/namespaces", incomplete)


@_in_time
def nodes(ctx: Any, incomplete: str) -> list[str]:
    """Nodes of the cluster."""
    return _names(ctx, "/api/v1/nodes", incomplete)


@_in_time
def pods(ctx: Any, incomplete: str) -> list[str]:
    """Pods of the namespace that ``-n`` or the context names, or of that before a slash."""
    return _in_namespace(ctx, "/api/v1", "pods", incomplete)


def of_kind(kind: str) -> Names:
    """Workloads of a kind, such as ``deployment``, in the same namespaces."""
    group = "/apis/batch/v1" if kind in _BATCH else "/apis/apps/v1"

    @_in_time
    def names(ctx: Any, incomplete: str) -> list[str]:
        return _in_namespace(ctx, group, f"{kind}s", incomplete)

    return names


@_in_time
def workloads(ctx: Any, incomplete: str) -> list[str]:
    """Deployments and StatefulSets of the same namespace, as ``deployment/NAME``."""
    namespace = _namespace(ctx)
    word, slash, name = incomplete.partition("/")
    found = []
    for kind in ("deployment", "statefulset"):
        if kind_of(word) == kind if slash else kind.startswith(word):
            path = f"/apis/apps/v1/namespaces/{namespace}/{kind}s"
            shown = word if slash else kind
            found += [f"{shown}/{each}" for each in _names(ctx, path, name)]
    return found


@_in_time
def servings(ctx: Any, incomplete: str) -> list[str]:
    """Model servers of the same namespace."""
    path = f"/apis/apps/v1/namespaces/{_namespace(ctx)}/deployments"
    with _source(ctx).connect() as kube:
        labels = [each.labels or {} for each in _listed(kube, path)]
    names = {each.get(LABEL_SERVING_NAME, "") for each in labels} - {""}
    return sorted(name for name in names if name.startswith(incomplete))


def one_of(words: Iterable[str]) -> Callable[[str], list[str]]:
    """The words of an option that begin as the incomplete one does."""
    known = tuple(words)

    def offered(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return offered


def some_of(words: Iterable[str]) -> Callable[[str], list[str]]:
    """As :func:`one_of`, of an option that takes words separated by commas."""
    known = one_of(words)

    def offered(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in known(last)]

    return offered


def _in_namespace(ctx: Any, group: str, kind: str, incomplete: str) -> list[str]:
    namespace, slash, name = incomplete.rpartition("/")
    path = f"{group}/namespaces/{namespace or _namespace(ctx)}/{kind}"
    return [f"{namespace}{slash}{each}" for each in _names(ctx, path, name)]


def _namespace(ctx: Any) -> str:
    from gpukube.kubeconfig.finding import default_namespace  # noqa: PLC0415 - as above

    source = _source(ctx)
    given = ctx.params.get("namespace")
    return given or default_namespace(source.kubeconfig, source.context or "")


def _names(ctx: Any, path: str, incomplete: str) -> list[str]:
    with _source(ctx).connect() as kube:
        names = (each.name for each in _listed(kube, path))
        return [name for name in names if name.startswith(incomplete)]


def _listed(kube: Any, path: str) -> Iterator[_Metadata]:
    for raw in listed(kube, ListRequest("", path), cached=True):
        yield msgspec.json.decode(raw, type=_Object).metadata


def _source(ctx: Any) -> ClusterSource:
    kubeconfig, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
    return ClusterSource(Path(kubeconfig) if kubeconfig else None, context, timeout_seconds=SECONDS)
