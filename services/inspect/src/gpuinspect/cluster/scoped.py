"""Reads as much of a cluster as the credentials allow: all of it, or one namespace.

The whole cluster is requested first, because only then the core can decide again. What is forbidden
is noted as missing; at least the pods of one namespace must be readable.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpuinspect.cluster import snapshots
from gpuinspect.cluster.collect import (
    CLAIMS,
    NODES,
    PODS,
    RESOURCE_API,
    ClusterSource,
    ListRequest,
    Objects,
    ReadLists,
    objects_of,
)
from gpuinspect.cluster.snapshots import ListedObjects, Snapshot
from gpukube.errors import ForbiddenError, KubeError

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

VIEWER: Final = "gpushare-viewer"
"""ClusterRole of the chart with the rights of these commands."""
_FORBIDDEN: Final = 403


def read(source: ClusterSource, namespace: str, *wanted: ListRequest) -> Snapshot:
    """Nodes, pods and the ``wanted`` lists, as far as they may be read.

    Args:
        namespace: whose pods are needed; empty for those of all namespaces.
        wanted: lists that are of use but not needed.

    Raises:
        InspectError: the snapshot file cannot be read.
        KubeError: the pods cannot be read.
        ConfigError: no credentials are found.
    """
    if source.snapshot is not None:
        return snapshots.read(source.snapshot)
    with source.connect() as kube:
        return scoped(kube, namespace, wanted)


def scoped(kube: "BlockingClient", namespace: str, wanted: Sequence[ListRequest] = ()) -> Snapshot:
    """As :func:`read`, from a live API server.

    Raises:
        KubeError: the pods cannot be read, or an answer makes no sense.
    """
    missing: dict[str, str] = {}
    found = ReadLists.read(kube, _needed(kube, namespace, missing), wanted)
    found.missing.update(missing)
    if namespace and CLAIMS.path in found.forbidden:
        _add_claims_of(kube, namespace, found)
    return found.snapshot()


def _add_claims_of(kube: "BlockingClient", namespace: str, found: ReadLists) -> None:
    """The claims of the namespace, where those of all are forbidden; these stay missing."""
    path = f"{RESOURCE_API}/namespaces/{namespace}/resourceclaims"
    with suppress(KubeError):
        found.objects.extend(objects_of(kube, CLAIMS._replace(path=path)))


def _needed(kube: "BlockingClient", namespace: str, missing: dict[str, str]) -> Objects:
    try:
        nodes = objects_of(kube, NODES)
    except ForbiddenError as error:
        nodes, missing["Node"] = [], _refused(error)
    try:
        return nodes + objects_of(kube, PODS)
    except ForbiddenError as error:
        reason = _refused(error)
        if not namespace:
            raise
        missing["Pod"] = reason
    return nodes + objects_of(kube, ListRequest("Pod", f"/api/v1/namespaces/{namespace}/pods"))


def _refused(error: ForbiddenError) -> str:
    """The error text of a 403; a 401 is raised, since an unknown user has no rights anywhere."""
    if error.status != _FORBIDDEN:
        raise error
    return str(error)


def is_partial(snapshot: Snapshot) -> bool:
    """Some nodes or pods are unknown, so that the core cannot decide as the extender does."""
    return not {"Node", "Pod"}.isdisjoint(snapshot.missing)


def gaps(snapshot: ListedObjects, follows: Mapping[str, str]) -> Iterator[str]:
    """What could not be read, what follows, and which role gives the right; one sentence each.

    Args:
        follows: what follows where a kind cannot be read; other kinds are not mentioned.
    """
    role = f"ClusterRole {VIEWER} of the chart gives the right"
    for kind, sentence in follows.items():
        if kind in snapshot.missing:
            yield f"{sentence}: {snapshot.missing[kind]}; {role}"


NO_CLAIMS: Final = {
    "ResourceSlice": "ResourceSlices cannot be read, so GPUs offered as claims are missing",
    "ResourceClaim": "ResourceClaims cannot be read, so what claims hold is missing",
}
"""What follows for commands that show allocations."""

REASONS: Final = {
    "Node": "nodes cannot be read, so reasons are the scheduler's own words",
    "Pod": "pods of other namespaces cannot be read, so reasons are the scheduler's own words",
    **NO_CLAIMS,
}
"""What follows for commands that give reasons."""
