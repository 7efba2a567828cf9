"""Parts of Kubernetes objects that accounting never reads and the checks do."""

from collections.abc import Iterator

import msgspec

from gpucore.wire.names import ENV_VISIBLE_DEVICES, NO_DEVICES


class DoctorPodFacts(msgspec.Struct, frozen=True):
    """What a pod is allowed and how it fares.

    Attributes:
        privileged: a container of it is; it then sees every GPU.
        runtime_class: empty for the default.
        ready: condition Ready is True.
        looked_at: a scheduler has set the condition PodScheduled.
        restarts: of all containers.
        choosing_gpus: names of the containers whose environment chooses GPUs.
    """

    privileged: bool = False
    runtime_class: str = ""
    ready: bool = False
    looked_at: bool = False
    restarts: int = 0
    choosing_gpus: tuple[str, ...] = ()


class _Security(msgspec.Struct):
    privileged: bool | None = None


class _Variable(msgspec.Struct, rename="camel"):
    name: str = ""
    value: str | None = None
    value_from: dict[str, object] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    env: list[_Variable] | None = None
    security_context: _Security | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    runtime_class_name: str | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _ContainerStatus(msgspec.Struct, rename="camel"):
    restart_count: int = 0


class _PodStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


class ObjectMeta(msgspec.Struct):
    """Name of an object; ``namespace`` is empty for those of the cluster."""

    name: str = ""
    namespace: str = ""


class NamedObject(msgspec.Struct):
    """The metadata of an object of any kind."""

    metadata: ObjectMeta


def pod_facts(raw: msgspec.Raw) -> DoctorPodFacts:
    """The fields of a raw pod that the checks read."""
    pod = msgspec.json.decode(raw, type=_Pod)
    spec, status = pod.spec or _PodSpec(), pod.status or _PodStatus()
    conditions = {each.type: each.status for each in status.conditions or ()}
    return DoctorPodFacts(
        privileged=any(_privileged(spec)),
        runtime_class=spec.runtime_class_name or "",
        ready=conditions.get("Ready") == "True",
        looked_at="PodScheduled" in conditions,
        restarts=sum(each.restart_count for each in status.container_statuses or ()),
        choosing_gpus=tuple(box.name for box in _containers(spec) if _chooses_gpus(box)),
    )


def _containers(spec: _PodSpec) -> Iterator[_Container]:
    for boxes in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        yield from boxes or ()


def _chooses_gpus(container: _Container) -> bool:
    """An empty value chooses none."""
    return any(
        each.value_from is not None or each.value not in {*NO_DEVICES, "", None}
        for each in container.env or ()
        if each.name == ENV_VISIBLE_DEVICES
    )


def _privileged(spec: _PodSpec) -> Iterator[bool]:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        yield bool(container.security_context and container.security_context.privileged)
