"""Why a pod will never run, by its status: a wait for it ends at once and names the cause."""

from collections.abc import Iterable

from environments.kubectl import Object

_NO_IMAGE = frozenset({"ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"})


class PodFaultError(AssertionError):
    """A pod cannot start; names the container, its image and its node."""


def demand_images(pods: Iterable[Object]) -> None:
    """Return where no container waits for an image that its node cannot have.

    Raises:
        PodFaultError: one does.
    """
    for pod in pods:
        for status in _statuses(pod):
            waiting = status.get("state", {}).get("waiting", {})
            if waiting.get("reason") in _NO_IMAGE:
                raise PodFaultError(_sentence(pod, status, waiting))


def _statuses(pod: Object) -> Iterable[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _sentence(pod: Object, status: Object, waiting: Object) -> str:
    meta, node = pod["metadata"], pod["spec"].get("nodeName")
    message = waiting.get("message", "")
    return (
        f"pod {meta['namespace']}/{meta['name']}, container {status['name']}: image "
        f"{status['image']} was not loaded into node {node} and cannot be pulled "
        f"({waiting['reason']}: {message})"
    )
