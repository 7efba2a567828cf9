"""The controller of a pod, which creates another pod where this one goes, and its workload."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from gpucore.units import PodUid
from gpucore.wire.errors import WireError, decoded
from gpucore.wire.pod.spec import Pod, created

_HASH: Final = "pod-template-hash"
_DUE: Final = re.compile(r"(?P<name>.+)-(?P<minute>[0-9]{8,10})")
_LONGEST_NAME: Final = 253
_LATE_SECONDS: Final = 7 * 24 * 3600.0
"""How long after its minute a pod of a CronJob may be created, retries included."""


class Controller(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference with ``controller: true``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    owner_references: list[Controller] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    items: list[_Pod] | None = None


class _Event(msgspec.Struct):
    object: _Pod


_DECODER = msgspec.json.Decoder(_Pod)
_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(_Event)


def controller_of(raw: bytes | msgspec.Raw) -> Controller | None:
    """The controller of a pod object; ``None`` where it has none.

    Raises:
        WireError: the bytes are no pod.
    """
    owners = decoded(_DECODER, raw, "no pod").metadata.owner_references or ()
    return _controller(owners)


def controllers_of_list(raw: bytes) -> dict[PodUid, Controller]:
    """The controllers in a page of a list of pods, by UID of the pod; empty for other bytes."""
    try:
        pods = decoded(_LIST, raw, "no list").items or ()
    except WireError:
        return {}
    found = ((pod.metadata.uid, _controller(pod.metadata.owner_references or ())) for pod in pods)
    return {PodUid(uid): controller for uid, controller in found if controller is not None}


def controller_of_event(raw: bytes) -> Controller | None:
    """The controller of the pod in a line of a watch; ``None`` for none and for other bytes."""
    try:
        pod = decoded(_EVENT, raw, "no event").object
        return _controller(pod.metadata.owner_references or ())
    except WireError:
        return None


def _controller(owners: Iterable[Controller]) -> Controller | None:
    return next((owner for owner in owners if owner.controller), None)


def workload_of(pod: Pod, controller: Controller | None) -> tuple[str, str]:
    """Kind and name of the workload; the pod itself where it has no controller that can exist.

    A ReplicaSet is named after its Deployment and the hash in the pod's label, a Job of a CronJob
    after the CronJob and the minute it was due: no further object is read.
    """
    if controller is None or not all(map(_is_name, _own(controller))):
        return "Pod", pod.name
    if controller.kind == "ReplicaSet":
        suffix = f"-{pod.labels.get(_HASH, '')}"
        name = controller.name.removesuffix(suffix)
        return ("Deployment", name) if name and name != controller.name else _own(controller)
    if controller.kind == "Job":
        due = _DUE.fullmatch(controller.name)
        if due and 0 <= created(pod) - 60 * int(due["minute"]) <= _LATE_SECONDS:
            return "CronJob", due["name"]
    return _own(controller)


def _is_name(text: str) -> bool:
    """An object or a kind may be called so; in an owner reference the API server takes any text."""
    return len(text) <= _LONGEST_NAME and text.isascii() and text.isprintable()


def _own(controller: Controller) -> tuple[str, str]:
    return controller.kind, controller.name
