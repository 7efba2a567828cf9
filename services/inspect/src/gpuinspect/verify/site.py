"""One run on a cluster: its objects come, its pods run, everything goes.

Whatever ends a run, the end of the context removes its objects; where not even that can run, the
guard does. A pod's answers are its log, so nothing here needs to enter a container.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from gpuinspect.verify import objects
from gpuinspect.verify.objects import Object, RunPlace
from gpukube.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ServerError,
    StatusError,
    ThrottledError,
    UnreachableError,
)

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

LOOK_SECONDS: Final = 0.3
START_SECONDS: Final = 120.0
END_SECONDS: Final = 180.0
GONE_SECONDS: Final = 90.0
PASSING: Final = (UnreachableError, ThrottledError, ServerError)
"""What a wait outlasts, such as an API server that restarts."""
_REFUSALS: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Of admission: a policy, a webhook, a quota."""


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    creation_timestamp: datetime | None = None


class _Created(msgspec.Struct):
    metadata: _Metadata


class PodFailedError(Exception):
    """A pod of a check did not start, or did not get to its end; a sentence for its row."""


class PodLateError(PodFailedError):
    """A pod runs, and did not end in time."""


class PodRefusedError(PodFailedError):
    """Admission refused a pod."""


class OutOfTimeError(Exception):
    """The time of the run is over."""


class RunStoppedError(Exception):
    """The run ends before its time: the user stopped it, or another node failed."""


class VerifySite:
    """The run's part of the cluster; use as a context. Several threads may create pods in it.

    Args:
        kube: the API server.
        place: where the pods are.
        keep: leave the objects until the deadline of the guard.

    Attributes:
        closing: the objects of the run are being removed.
        left_behind: the command that deletes what was not gone at the end; empty for none.
    """

    def __init__(
        self,
        kube: "BlockingClient",
        place: RunPlace,
        *,
        keep: bool = False,
    ) -> None:
        self._kube, self.place, self._keep = kube, place, keep
        self._end = time.monotonic() + place.seconds
        self._numbers = itertools.count(1)
        self._stopped = Event()
        self._begun = self.closing = False
        self.left_behind = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Remove the objects of the run, once; with ``keep`` the guard does."""
        if self.closing:
            return
        self.closing = True
        if not self._begun or (self._keep and self.place.guard_uid):
            return
        self.left_behind = objects.deletion(self.place)  # also where Ctrl-C ends the removal
        if self._close():
            self.left_behind = ""

    @property
    def kept(self) -> str:
        """The command that deletes what the guard deletes later; empty where nothing is kept."""
        return objects.deletion(self.place) if self._keep and self.place.guard_uid else ""

    @property
    def left(self) -> float:
        """Seconds until the end of the run."""
        return self._end - time.monotonic()

    def open(self) -> None:
        """Create the namespace and the guard.

        Raises:
            KubeError: the API server refuses one of them, or does not answer.
        """
        place = self.place
        self._begun = True
        created = None
        if place.own:
            made = self._kube.post("/api/v1/namespaces", objects.namespace(place))
            created = msgspec.json.decode(made, type=_Created).metadata.creation_timestamp
            for path, item in objects.guard_rights(place):
                self._kube.post(path, item)
        made = self._kube.post(self._jobs, objects.guard(place, created))
        guard = msgspec.json.decode(made, type=_Created)
        self.place = msgspec.structs.replace(place, guard_uid=guard.metadata.uid)
        if created is not None:
            self._remove_expired(created)

    def _remove_expired(self, now: datetime) -> None:
        """Remove namespaces of runs that were killed before their guard was there.

        Who may not list namespaces leaves them; they are empty.
        """
        try:
            raw = self._kube.get("/api/v1/namespaces", {"labelSelector": objects.selector()})
        except KubeError:
            return
        for item in msgspec.json.decode(raw)["items"]:
            if objects.expired(item, now):
                with suppress(KubeError):
                    self._kube.delete(f"/api/v1/namespaces/{item['metadata']['name']}")

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.place.namespace}/jobs"

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.place.namespace}/pods"

    def stop(self) -> None:
        """End what waits in other threads: it raises RunStoppedError."""
        self._stopped.set()

    def check_running(self) -> None:
        """Whether the run goes on.

        Raises:
            RunStoppedError: it was stopped.
        """
        if self._stopped.is_set():
            raise RunStoppedError

    def _close(self) -> bool:
        """Remove every object of the run and wait until they are gone; whether they are.

        An API server that does not answer may come back.
        """
        place = self.place
        path = f"/api/v1/namespaces/{place.namespace}"
        if not place.own:
            path = f"{self._jobs}/{objects.guard_name(place)}"
        deadline, accepted = time.monotonic() + GONE_SECONDS, False
        while time.monotonic() < deadline:
            try:
                accepted = accepted or self._accepts_deletion(path)
                if accepted and self._gone(path):
                    return True
            except KubeError:
                return False
            time.sleep(LOOK_SECONDS)
        return False

    def _accepts_deletion(self, path: str) -> bool:
        try:
            self._kube.delete(path, {"propagationPolicy": "Foreground"})
        except PASSING:
            return False
        except (NotFoundError, ConflictError):  # it is gone, or being deleted
            return True
        return True

    def _gone(self, path: str) -> bool:
        try:
            self._kube.get(path)
        except (NotFoundError, ForbiddenError):  # a Role of the namespace goes before it
            return True
        except KubeError:
            return False
        return False

    def new_name(self, row: str) -> str:
        """Name of the next pod."""
        return f"{row}-{next(self._numbers)}"

    def create(
        self,
        row: str,
        plan: Sequence[Mapping[str, Any]],
        limits: Mapping[str, int],
        *,
        node: str,
        annotations: Mapping[str, str] | None = None,
        outside: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Create a pod; its name.

        Raises:
            PodRefusedError: admission refuses it.
            PodFailedError: it could not be created.
            OutOfTimeError, RunStoppedError: the run is over.
        """
        self._check_time()
        name = self.new_name(row)
        place = msgspec.structs.replace(self.place, node=node)
        item = objects.pod(
            place,
            name,
            plan,
            limits,
            seconds=max(int(self.left), 10),
            annotations=annotations,
            outside=outside,
            variables=variables,
        )
        try:
            self._kube.post(self._pods, item)
        except KubeError as error:
            refused = isinstance(error, StatusError) and error.status in _REFUSALS
            failure = PodRefusedError if refused else PodFailedError
            raise failure(f"the pod cannot be created: {error}") from error
        return name

    def pod(self, name: str) -> Object:
        """The pod as the API server has it."""
        found: Object = msgspec.json.decode(self._kube.get(f"{self._pods}/{name}"))
        return found

    def disruption(self, name: str) -> str:
        """Why somebody ended a pod of the row, such as by preemption; empty where nobody did."""
        try:
            item = self.pod(name)
        except NotFoundError:
            return f"pod {name} was deleted during the row"
        for each in item.get("status", {}).get("conditions", ()):
            if each.get("type") == "DisruptionTarget" and each.get("status") == "True":
                return f"pod {name} was ended during the row: {each.get('message', '')}"
        gone = "deletionTimestamp" in item["metadata"]
        return f"pod {name} was deleted during the row" if gone else ""

    def log(self, name: str) -> str:
        """Its log so far; empty before it has one."""
        try:
            return self._kube.get(f"{self._pods}/{name}/log").decode(errors="replace")
        except KubeError:
            return ""

    def delete(self, name: str) -> None:
        """Delete a pod and wait until its share is free; with the run go all of its pods."""
        self.check_running()
        self.wait(lambda: self._told_to_end(name), f"the deletion of pod {name} is accepted")
        self.wait(lambda: self._gone(f"{self._pods}/{name}"), f"pod {name} is deleted")

    def _told_to_end(self, name: str) -> bool:
        with suppress(NotFoundError):
            self._kube.delete(f"{self._pods}/{name}", {"gracePeriodSeconds": "1"})
        return True

    def wait(self, done: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait until something is so; an API server that does not answer may come back.

        Raises:
            PodFailedError: not in time.
            OutOfTimeError, RunStoppedError: the run is over.
        """
        deadline, fault = time.monotonic() + seconds, ""
        while True:
            try:
                if done():
                    return
                fault = ""
            except PASSING as error:
                fault = f" ({error})"
            self._check_time()
            if time.monotonic() > deadline:
                raise PodFailedError(f"not in {seconds:g} s: {what}{fault}")
            time.sleep(LOOK_SECONDS)

    def bound(self, name: str) -> Object:
        """Wait until a pod has a node, and with it its GPUs."""
        found: dict[str, Object] = {}

        def placed() -> bool:
            found["pod"] = self.pod(name)
            return bool(found["pod"]["spec"].get("nodeName")) or _phase(found["pod"]) == "Failed"

        try:
            self.wait(placed, f"pod {name} has a node", 60.0)
        except PodFailedError as error:
            raise PodFailedError(f"{error}: {waiting_reason(found.get('pod', {}))}") from None
        return found["pod"]

    def ended(self, name: str) -> Object:
        """Wait until a pod has run its plan; the pod.

        Raises:
            PodLateError: it runs, and did not end in time.
            PodFailedError: it did not start in time.
        """
        found: dict[str, Object] = {}

        def over() -> bool:
            found["pod"] = item = self.pod(name)
            return _phase(item) in {"Succeeded", "Failed"}

        try:
            self.wait(over, f"pod {name} ends", END_SECONDS)
        except PodFailedError as error:
            item = found.get("pod", {})
            failure = PodLateError if _phase(item) == "Running" else PodFailedError
            raise failure(f"{error}: {waiting_reason(item)}") from None
        return found["pod"]

    def _check_time(self) -> None:
        self.check_running()
        if self.left <= 0:
            raise OutOfTimeError(f"the time of the run, {self.place.seconds} s, is over")


def _phase(item: Object) -> str:
    return str(item.get("status", {}).get("phase", ""))


def waiting_reason(item: Object) -> str:
    """Why a pod does not run, in the words of the scheduler or of kubelet."""
    status = item.get("status", {})
    for each in status.get("containerStatuses", ()):
        state = each.get("state", {})
        details = state.get("waiting") or state.get("terminated") or {}
        if details.get("message") or details.get("reason"):
            return f"{details.get('reason', '')} {details.get('message', '')}".strip()
    if status.get("message"):
        return str(status["message"])
    for each in status.get("conditions", ()):
        if each.get("status") == "False" and each.get("message"):
            return str(each["message"])
    return f"phase {_phase(item) or 'unknown'}"
