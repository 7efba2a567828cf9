"""What schedulers and kubelets have said about a pod: its conditions and its events.

Read from the raw objects, since accounting never needs them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gpucore.wire.podspec import Pod
from gpuinspect.snapshots import Snapshot

GATED: Final = "SchedulingGated"
"""Reason of PodScheduled=False that the API server sets: no scheduler has seen the pod."""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One event about the pod, repeats counted."""

    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        """RFC 3339 time of its last repeat; empty unknown."""
        return self.last_timestamp or self.event_time or ""


class Sightings(msgspec.Struct, frozen=True):
    """What is on record about one pod.

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
    def last_words(self) -> str:
        """The scheduler's last message about why it does not fit."""
        failures = [event.message for event in self.events if event.reason == "FailedScheduling"]
        return self.unschedulable or (failures[-1] if failures else "")


class _Ref(msgspec.Struct, frozen=True):
    uid: str = ""
    namespace: str = ""
    name: str = ""


class _Event(Event, frozen=True, rename="camel"):
    involved_object: _Ref = _Ref()


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Pod(msgspec.Struct):
    metadata: _Ref
    status: _Status = _Status()


def sightings(snapshot: Snapshot, pod: Pod) -> Sightings:
    """What ``snapshot`` has on record about ``pod``."""
    events = sorted(_events(snapshot, pod), key=lambda event: event.when)
    return Sightings(_unschedulable(snapshot, pod), tuple(events), snapshot.knows("Event"))


def _events(snapshot: Snapshot, pod: Pod) -> Iterator[Event]:
    for raw in snapshot.all("Event"):
        event = msgspec.json.decode(raw, type=_Event)
        about = event.involved_object
        same = (about.namespace, about.name) == (pod.namespace, pod.name)
        if same and about.uid in {"", pod.uid}:
            yield event


def _unschedulable(snapshot: Snapshot, pod: Pod) -> str:
    place = next(i for i, each in enumerate(snapshot.pods) if each.uid == pod.uid)
    status = msgspec.json.decode(snapshot.all("Pod")[place], type=_Pod).status
    return _message(status.conditions or ())


def _message(conditions: Iterable[_Condition]) -> str:
    for condition in conditions:
        if condition.type != "PodScheduled" or condition.reason == GATED:
            continue
        if condition.status == "False":
            return condition.message
    return ""
