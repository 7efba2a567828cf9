"""One Lease: only its holder evicts, and its annotation remembers the evictions of the last hour.

Every write has the resource version that was read as its precondition. Each eviction is written
before it is requested, so a run that lost the Lease learns it before it evicts, and a run that
dies has counted its eviction.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from gpucore.defrag.budgets import PastEviction, recent
from gpucore.wire.names import DEFRAG_HISTORY
from gpuinspect.errors import InspectError
from gpukube.errors import ConflictError, InvalidReplyError, NotFoundError, StatusError

SECONDS: Final = 120
"""Lease duration in seconds: longer than a read of a large cluster takes."""
_UNPROCESSABLE: Final = 422
_PRECONDITION_FAILED: Final = frozenset({409, _UNPROCESSABLE})


class LeaseError(InspectError):
    """Another run holds the Lease."""


class LeaseClient(Protocol):
    """The part of the API server that a Lease needs."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """GET an object."""
        ...

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Create an object."""
        ...

    def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> bytes:
        """Apply a JSON patch."""
        ...


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


class DefragLease:
    """Use between :meth:`acquire` and :meth:`release`.

    Args:
        namespace, name: of the Lease.
        holder: identity of this run.
        clock: the time.
    """

    def __init__(
        self,
        kube: LeaseClient,
        namespace: str,
        name: str,
        holder: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._kube, self._holder, self._clock = kube, holder, clock
        self._list = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._found = _Lease(_Metadata())

    @property
    def history(self) -> tuple[PastEviction, ...]:
        """The evictions of the last hour, of all runs."""
        text = (self._found.metadata.annotations or {}).get(DEFRAG_HISTORY, "[]")
        try:
            found = msgspec.json.decode(text, type=tuple[PastEviction, ...])
        except msgspec.MsgspecError as error:
            where = f"annotation {DEFRAG_HISTORY} of Lease {self._name}"
            raise InvalidReplyError(f"{where} cannot be parsed: {error}") from error
        return recent(found, int(self._clock().timestamp()))

    def look(self) -> None:
        """Read the Lease without taking it; one that is missing has no history.

        Raises:
            KubeError: it cannot be read.
        """
        try:
            self._found = _decoded(self._kube.get(self._path))
        except NotFoundError:
            self._found = _Lease(_Metadata())

    def acquire(self) -> None:
        """Take the Lease, which is created where it is missing.

        Raises:
            LeaseError: another run holds it.
            KubeError: it cannot be read or written.
        """
        self.look()
        if not self._found.metadata.resource_version:
            self._create()
            return
        spec = self._found.spec or _Spec()
        if spec.holder_identity and not self._expired(spec):
            raise LeaseError(f"another run, {spec.holder_identity}, holds Lease {self._name}")
        self._write(self._holder, self.history)

    def record(self, eviction: PastEviction) -> None:
        """Write an eviction that is about to be requested, and renew the Lease.

        Raises:
            LeaseError: another run took the Lease.
            KubeError: it cannot be written.
        """
        self._write(self._holder, (*self.history, eviction))

    def release(self) -> None:
        """Let the next run take it at once.

        Raises:
            LeaseError, KubeError: as :meth:`record`.
        """
        self._write("", self.history)

    @property
    def _path(self) -> str:
        return f"{self._list}/{self._name}"

    def _expired(self, spec: _Spec) -> bool:
        try:
            renewed = datetime.fromisoformat(spec.renew_time or "")
            age = (self._clock() - renewed).total_seconds()
        except (ValueError, TypeError):
            return True
        return age > (spec.lease_duration_seconds or SECONDS)

    def _create(self) -> None:
        metadata = {"name": self._name}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": self._spec(self._holder),
        }
        try:
            self._found = _decoded(self._kube.post(self._list, body))
        except ConflictError as error:
            raise LeaseError(f"another run created Lease {self._name}") from error

    def _write(self, holder: str, history: Sequence[PastEviction]) -> None:
        metadata = self._found.metadata
        text = msgspec.json.encode(history).decode()
        operations: list[dict[str, Any]] = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": metadata.resource_version,
            },
            {
                "op": "add",
                "path": "/metadata/annotations",
                "value": {**(metadata.annotations or {}), DEFRAG_HISTORY: text},
            },
            {"op": "add", "path": "/spec", "value": self._spec(holder)},
        ]
        try:
            self._found = _decoded(self._kube.json_patch(self._path, operations))
        except StatusError as error:
            if error.status in _PRECONDITION_FAILED:
                raise LeaseError(f"another run took Lease {self._name}") from error
            raise

    def _spec(self, holder: str) -> dict[str, Any]:
        now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": SECONDS}


def _decoded(body: bytes) -> _Lease:
    try:
        return msgspec.json.decode(body, type=_Lease)
    except msgspec.MsgspecError as error:
        raise InvalidReplyError(f"the Lease cannot be parsed: {error}") from error
