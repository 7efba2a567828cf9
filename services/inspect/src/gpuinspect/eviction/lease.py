"""One Lease: only its holder evicts.

Every write has the resource version that was read as its precondition. The Lease is written before
each eviction is requested, so a run that lost it learns that before it evicts.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuinspect.errors import InspectError
from gpukube.errors import ConflictError, InvalidReplyError, KubeError, NotFoundError, StatusError

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

SECONDS: Final = 120
"""Lease duration in seconds: longer than a read of a large cluster takes."""
_UNPROCESSABLE: Final = 422
_PRECONDITION_FAILED: Final = frozenset({409, _UNPROCESSABLE})


class LeaseError(InspectError):
    """Another run holds the Lease."""


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


class RunLease:
    """Use between :meth:`acquire` and :meth:`release`.

    Args:
        lease: ``NAMESPACE/NAME``.

    Raises:
        InspectError: that is no namespace and name.
    """

    def __init__(self, kube: "BlockingClient", lease: str, clock: Callable[[], datetime]) -> None:
        namespace, _, name = lease.partition("/")
        if not (namespace and name):
            raise InspectError(f"--lease {lease}: write NAMESPACE/NAME")
        self._kube, self._clock = kube, clock
        self._holder = f"{socket.gethostname()}-{os.getpid()}"
        self._list = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.name = name
        self._found = _Lease(_Metadata())

    @property
    def annotations(self) -> Mapping[str, str]:
        """Those of the Lease as it was read or written last."""
        return self._found.metadata.annotations or {}

    def look(self) -> None:
        """Read the Lease without taking it; one that is missing has no annotations.

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
            raise LeaseError(f"another run, {spec.holder_identity}, holds Lease {self.name}")
        self._write(self._holder, {})

    def renew(self, annotations: Mapping[str, str] | None = None) -> None:
        """Hold the Lease for another while, before an eviction is requested.

        Args:
            annotations: of the Lease, to write in the same request.

        Raises:
            LeaseError: another run took the Lease.
            KubeError: it cannot be written.
        """
        self._write(self._holder, annotations or {})

    def release(self) -> None:
        """Let the next run take it at once; one that cannot be written expires by itself."""
        with suppress(LeaseError, KubeError):
            self._write("", {})

    @property
    def _path(self) -> str:
        return f"{self._list}/{self.name}"

    def _expired(self, spec: _Spec) -> bool:
        try:
            renewed = datetime.fromisoformat(spec.renew_time or "")
            age = (self._clock() - renewed).total_seconds()
        except (ValueError, TypeError):
            return True
        return age > (spec.lease_duration_seconds or SECONDS)

    def _create(self) -> None:
        metadata = {"name": self.name}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": self._spec(self._holder),
        }
        try:
            self._found = _decoded(self._kube.post(self._list, body))
        except ConflictError as error:
            raise LeaseError(f"another run created Lease {self.name}") from error

    def _write(self, holder: str, annotations: Mapping[str, str]) -> None:
        metadata = self._found.metadata
        operations: list[dict[str, Any]] = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": metadata.resource_version,
            },
            {
                "op": "add",
                "path": "/metadata/annotations",
                "value": {**self.annotations, **annotations},
            },
            {"op": "add", "path": "/spec", "value": self._spec(holder)},
        ]
        try:
            self._found = _decoded(self._kube.json_patch(self._path, operations))
        except StatusError as error:
            if error.status in _PRECONDITION_FAILED:
                raise LeaseError(f"another run took Lease {self.name}") from error
            raise

    def _spec(self, holder: str) -> dict[str, Any]:
        now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": SECONDS}


def _decoded(body: bytes) -> _Lease:
    try:
        return msgspec.json.decode(body, type=_Lease)
    except msgspec.MsgspecError as error:
        raise InvalidReplyError(f"the Lease cannot be parsed: {error}") from error
