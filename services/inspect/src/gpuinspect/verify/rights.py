"""The rights that a run needs, asked for before anything is created."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EVENTS_NAMESPACE: Final = "default"
"""Of events on nodes."""


class NeededRight(NamedTuple):
    """One verb on one resource; ``namespace`` is empty for the whole cluster."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        """As ``kubectl auth can-i`` takes it."""
        what = self.resource if not self.group else f"{self.resource}.{self.group}"
        return f"{self.verb} {what}" + (f" -n {self.namespace}" if self.namespace else "")


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


def needed(namespace: str, *, own: bool) -> Iterator[NeededRight]:
    """The rights of a run.

    Args:
        namespace: of its pods.
        own: the run creates it.
    """
    for verb in ("create", "get", "delete"):
        yield NeededRight(verb, "", "pods", namespace)
    yield NeededRight("get", "", "pods/log", namespace)
    yield NeededRight("create", "batch", "jobs", namespace)
    if not own:
        yield NeededRight("delete", "batch", "jobs", namespace)
        return
    for verb in ("create", "get", "delete"):
        yield NeededRight(verb, "", "namespaces")
    yield NeededRight("create", "", "serviceaccounts", namespace)
    for resource in ("roles", "rolebindings"):
        yield NeededRight("create", "rbac.authorization.k8s.io", resource, namespace)


def recording(namespace: str) -> Iterator[NeededRight]:
    """The rights to record results.

    Args:
        namespace: of the device plugins.
    """
    for verb in ("get", "patch"):
        yield NeededRight(verb, "", "pods", namespace)
    yield NeededRight("create", "", "events", EVENTS_NAMESPACE)


def refused(kube: "BlockingClient", rights: Iterable[NeededRight]) -> tuple[NeededRight, ...]:
    """The rights that the user lacks, each once.

    Raises:
        KubeError: the API server does not answer reviews.
    """
    return tuple(each for each in dict.fromkeys(rights) if not _allowed(kube, each))


def _allowed(kube: "BlockingClient", right: NeededRight) -> bool:
    resource, _, part = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": part,
        "namespace": right.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return msgspec.json.decode(kube.post(REVIEWS, body), type=_Review).status.allowed
