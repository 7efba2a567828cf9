"""Parts of pods that accounting never reads, as the API server writes them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from gpucore.wire.objects import Condition


class SecurityContext(msgspec.Struct, rename="camel"):
    """Of a pod, or of one of its containers."""

    privileged: bool | None = None
    run_as_user: int | None = None


class Variable(msgspec.Struct, rename="camel"):
    """A variable of a container's environment."""

    name: str = ""
    value: str | None = None
    value_from: dict[str, object] | None = None


class VolumeMount(msgspec.Struct, rename="camel"):
    """Where a container has a volume."""

    name: str = ""
    mount_path: str = ""


class RawContainer(msgspec.Struct, rename="camel"):
    """One container."""

    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None
    volume_mounts: list[VolumeMount] | None = None
    security_context: SecurityContext | None = None

    @property
    def words(self) -> list[str]:
        """Its command line."""
        return [*(self.command or ()), *(self.args or ())]


class NamedReference(msgspec.Struct):
    """A Secret, or a ConfigMap, of the pod's namespace."""

    name: str = ""


class Volume(msgspec.Struct, rename="camel"):
    """One volume."""

    name: str = ""
    config_map: NamedReference | None = None


class RawPodSpec(msgspec.Struct, rename="camel"):
    """What a pod requests."""

    containers: list[RawContainer] | None = None
    init_containers: list[RawContainer] | None = None
    ephemeral_containers: list[RawContainer] | None = None
    volumes: list[Volume] | None = None
    image_pull_secrets: list[NamedReference] | None = None
    service_account_name: str = "default"
    runtime_class_name: str | None = None
    host_users: bool | None = None
    security_context: SecurityContext | None = None

    def named(self, container: str) -> Iterator[RawContainer]:
        """The containers with this name; at most one in a pod of an API server."""
        return (each for each in self.containers or () if each.name == container)


class Running(msgspec.Struct, rename="camel"):
    """The state of a container that runs."""

    started_at: datetime | None = None


class Terminated(msgspec.Struct):
    """How a container ended."""

    reason: str = ""


class RawContainerState(msgspec.Struct):
    """Where a container is in its life."""

    running: Running | None = None
    terminated: Terminated | None = None


class RawContainerStatus(msgspec.Struct, rename="camel"):
    """How a container fares."""

    name: str = ""
    state: RawContainerState | None = None
    restart_count: int = 0
    last_state: RawContainerState | None = None


class RawPodStatus(msgspec.Struct, rename="camel"):
    """How a pod fares."""

    conditions: list[Condition] | None = None
    container_statuses: list[RawContainerStatus] | None = None

    @property
    def by_type(self) -> dict[str, str]:
        """The status of each condition."""
        return {each.type: each.status for each in self.conditions or ()}


class _Pod(msgspec.Struct):
    spec: RawPodSpec | None = None
    status: RawPodStatus | None = None


_POD: Final = msgspec.json.Decoder(_Pod)


def spec_and_status(raw: msgspec.Raw) -> tuple[RawPodSpec, RawPodStatus]:
    """Both parts of a pod."""
    pod = _POD.decode(raw)
    return pod.spec or RawPodSpec(), pod.status or RawPodStatus()


def spec_of(raw: msgspec.Raw) -> RawPodSpec:
    """What a pod requests."""
    return spec_and_status(raw)[0]


def status_of(raw: msgspec.Raw) -> RawPodStatus:
    """How a pod fares."""
    return spec_and_status(raw)[1]
