"""What schedulers have recorded about a pod: its condition PodScheduled, and its events.

Read from the raw objects, since accounting never needs them.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.wire.errors import decoded

GATED: Final = "SchedulingGated"
"""Reason of PodScheduled=False that the API server sets: no scheduler has seen the pod."""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One event about the pod."""

    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        """RFC 3339 time of its last repeat; empty unknown."""
        return self.last_timestamp or self.event_time or ""


class SchedulerRecord(msgspec.Struct, frozen=True):
    """What schedulers have recorded about one pod.

    Attributes:
        unschedulable: message of the condition PodScheduled while it is false; empty otherwise.
        events: oldest first.
        complete: events could be read, so that none means none.
    """

    unschedulable: str = ""
    events: tuple[Event, ...] = ()
    complete: bool = True

    @property
    def scheduler_saw_it(self) -> bool:
        """A scheduler has tried to place it."""
        return bool(self.unschedulable) or any(
            event.reason in {"FailedScheduling", "Scheduled"} for event in self.events
        )

    @property
    def last_message(self) -> str:
        """The scheduler's last message about why it does not fit."""
        failures = [event.message for event in self.events if event.reason == "FailedScheduling"]
        return self.unschedulable or (failures[-1] if failures else "")


class _Ref(msgspec.Struct, frozen=True):
    uid: str = ""
    namespace: str = ""
    name: str = ""


class PodEvent(Event, frozen=True, rename="camel"):
    """An event with the object that it is about."""

    involved_object: _Ref = _Ref()


PodEvents = Mapping[tuple[str, str], Sequence[PodEvent]]
"""Events by namespace and name of their object."""
NO_EVENTS: Final[PodEvents] = MappingProxyType({})


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Pod(msgspec.Struct):
    metadata: _Ref
    status: _Status | None = None


_FAULT: Final = "no pod, or no event of one"
_POD: Final = msgspec.json.Decoder(_Pod)
_EVENT: Final = msgspec.json.Decoder(PodEvent)


def events_by_pod(events: Iterable[msgspec.Raw]) -> PodEvents:
    """The events of a cluster, each decoded once for all pods.

    Raises:
        WireError: an object is none of the Kubernetes API.
    """
    found: dict[tuple[str, str], list[PodEvent]] = {}
    for raw in events:
        event = decoded(_EVENT, raw, _FAULT)
        about = event.involved_object
        found.setdefault((about.namespace, about.name), []).append(event)
    return found


def scheduler_record(
    pod: bytes | msgspec.Raw, events: PodEvents = NO_EVENTS, *, complete: bool = False
) -> SchedulerRecord:
    """What schedulers have recorded about the pod of a raw object.

    Args:
        complete: these are all events.

    Raises:
        WireError: an object is none of the Kubernetes API.
    """
    found = decoded(_POD, pod, _FAULT)
    metadata = found.metadata
    named = events.get((metadata.namespace, metadata.name), ())
    same = (event for event in named if event.involved_object.uid in {"", metadata.uid})
    about = sorted(same, key=lambda event: event.when)
    status = found.status or _Status()
    return SchedulerRecord(_message(status.conditions or ()), tuple(about), complete)


def _message(conditions: Iterable[_Condition]) -> str:
    for condition in conditions:
        if condition.type != "PodScheduled" or condition.reason == GATED:
            continue
        if condition.status == "False":
            return condition.message
    return ""
