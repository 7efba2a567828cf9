"""Pods as the API server writes them, narrowed to what accounting and placement read.

Everything else of a pod is skipped while parsing: fifty thousand pods are held in memory.
"""

from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec

from gpucore.model.constraints import PodConstraints
from gpucore.units import NodeName, PodUid
from gpucore.wire.errors import decoded
from gpucore.wire.names import ENV_VISIBLE_DEVICES, NO_DEVICES
from gpucore.wire.objects import Condition, ObjectMetadata
from gpucore.wire.quantity import Amounts, Quantity, Texts, unix_seconds


class Container(msgspec.Struct, frozen=True, gc=False):
    """One container of a pod's specification.

    Attributes:
        limits: resource name to Kubernetes quantity, as text; of ours, requests are the same.
        requests: likewise; the API server copies a limit that has no request.
        restart_policy: ``Always`` makes an init container a sidecar; empty for the pod's.
        env: names of the variables that the specification sets, but for NVIDIA_VISIBLE_DEVICES
            where it hides every GPU.
        env_prefixes: of the variables that it takes from ConfigMaps and Secrets.
    """

    name: str = ""
    limits: Texts = {}
    requests: Amounts = {}
    restart_policy: str = ""
    env: tuple[str, ...] = ()
    env_prefixes: tuple[str, ...] = ()

    @property
    def is_sidecar(self) -> bool:
        """As an init container: it keeps running beside the containers."""
        return self.restart_policy == "Always"


class Pod(msgspec.Struct, frozen=True, gc=False):
    """One pod object.

    Attributes:
        node: where it is bound; empty while it is not.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed``, ``Unknown`` or empty.
        terminating: deletion was requested; its containers may still run.
        priority: of preemption; 0 where none is set.
        creation: RFC 3339 time.
        start: RFC 3339 time at which kubelet took it; empty where it has not.
        reason, message: why the pod is in its phase, as kubelet reports.
        owner: UID of the controller that created it; empty where none did.
        gated: it has scheduling gates, so no scheduler tries it yet.
        pod_group: name of its PodGroup (``spec.schedulingGroup``); empty where it has none.
        nominated: its ``status.nominatedNodeName``; empty where it has none.
        requests: of the pod as a whole, which replace those of its containers.
        overhead: of its runtime class, on top of what its containers request.
        constraints: what it requires of its node; ``None`` where that was not read.
        claims: names of its ResourceClaims, those made for extended resources included.
        named_claims: those that its specification names; the others were made for it.
        claim_templates: names of the ResourceClaimTemplates of its claims.
        unschedulable: it has no node, and its scheduler has tried to place it in vain.
    """

    uid: PodUid
    namespace: str
    name: str
    node: NodeName = NodeName("")
    phase: str = ""
    terminating: bool = False
    annotations: Texts = {}
    labels: Texts = {}
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    scheduler_name: str = ""
    priority: int = 0
    creation: str = ""
    resource_version: str = ""
    reason: str = ""
    message: str = ""
    owner: str = ""
    gated: bool = False
    nominated: NodeName = NodeName("")
    requests: Amounts = {}
    overhead: Amounts = {}
    constraints: PodConstraints | None = None
    claims: tuple[str, ...] = ()
    named_claims: tuple[str, ...] = ()
    claim_templates: tuple[str, ...] = ()
    pod_group: str = ""
    unschedulable: bool = False
    start: str = ""

    @property
    def finished(self) -> bool:
        """All containers have ended for good, so nothing is held any more."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def sidecars(self) -> tuple[Container, ...]:
        """Restartable init containers, in order."""
        return tuple(each for each in self.init_containers if each.is_sidecar)


def created(pod: Pod) -> float:
    """Unix seconds of the pod's creation; 0 where the text is none."""
    return unix_seconds(pod.creation)


def started(pod: Pod) -> float:
    """Unix seconds of the pod's start; later than all others where it has not started."""
    return unix_seconds(pod.start) or inf


class Present(msgspec.Struct, gc=False):
    """An object of which only its presence matters."""


class _Env(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    value: str = ""
    value_from: Present | None = None


class _EnvSource(msgspec.Struct, gc=False):
    prefix: str = ""


class ContainerResources(msgspec.Struct, gc=False):
    """Limits and requests of a container."""

    limits: dict[str, Quantity] | None = None
    requests: Amounts | None = None


class PodResources(msgspec.Struct, gc=False):
    """Limits and requests of a pod as a whole, as found."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class ContainerObject(msgspec.Struct, rename="camel", gc=False):
    """A container in the nesting of the API."""

    name: str = ""
    resources: ContainerResources | None = None
    restart_policy: str | None = None
    env: list[_Env] | None = None
    env_from: list[_EnvSource] | None = None


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""
    controller: bool | None = None


class Gate(msgspec.Struct, gc=False):
    """A scheduling gate."""

    name: str = ""


class _Metadata(ObjectMetadata):
    annotations: Texts | None = None
    labels: Texts | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None
    generation: int = 0


class _ClaimName(msgspec.Struct, rename="camel", gc=False):
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _SchedulingGroup(msgspec.Struct, rename="camel", gc=False):
    pod_group_name: str | None = None


class SpecObject(msgspec.Struct, rename="camel", gc=False):
    """``spec`` of a pod."""

    node_name: str | None = None
    containers: tuple[ContainerObject, ...] | None = None
    init_containers: tuple[ContainerObject, ...] | None = None
    ephemeral_containers: tuple[ContainerObject, ...] | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    scheduling_gates: list[Gate] | None = None
    resources: PodResources | None = None
    overhead: Amounts | None = None
    resource_claims: list[_ClaimName] | None = None
    scheduling_group: _SchedulingGroup | None = None


_CONDITIONS = msgspec.json.Decoder(list[Condition] | None)
NO_CONDITIONS: Final = msgspec.Raw(b"null")


class StatusObject(msgspec.Struct, rename="camel", gc=False):
    """``status`` of a pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    resource_claim_statuses: list[_ClaimName] | None = None
    extended_resource_claim_status: _ClaimName | None = None
    conditions: msgspec.Raw = NO_CONDITIONS


class PodObject(msgspec.Struct, gc=False):
    """A pod in the nesting of the API; :func:`flat` makes it a :class:`Pod`."""

    metadata: _Metadata
    spec: SpecObject | None = None
    status: StatusObject | None = None

    @property
    def container_count(self) -> int:
        """Number of its containers of every kind."""
        spec = self.spec or SpecObject()
        kinds = (spec.containers, spec.init_containers, spec.ephemeral_containers)
        return sum(len(each or ()) for each in kinds)


_DECODER = msgspec.json.Decoder(PodObject)


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Read one pod object.

    Raises:
        WireError: the bytes are no pod of the Kubernetes API.
    """
    return flat(decode_pod_object(raw))


def decode_pod_object(raw: bytes | msgspec.Raw) -> PodObject:
    """As :func:`decode_pod`, in the nesting of the API.

    Raises:
        WireError: the bytes are no pod of the Kubernetes API.
    """
    return decoded(_DECODER, raw, "no pod")


def deletion_end(raw: bytes | msgspec.Raw) -> float:
    """Unix seconds of a pod's ``metadata.deletionTimestamp``; 0 where it has none.

    The API server sets it to the time of the deletion plus the grace period, which is up to the
    author of the pod.

    Raises:
        WireError: the bytes are no pod.
    """
    return unix_seconds(decoded(_DECODER, raw, "no pod").metadata.deletion_timestamp)


def flat(pod: PodObject, constraints: PodConstraints | None = None) -> Pod:
    """The narrow value of a nested pod."""
    meta, spec, status = pod.metadata, pod.spec or SpecObject(), pod.status or StatusObject()
    return Pod(
        uid=PodUid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        node=NodeName(spec.node_name or ""),
        phase=status.phase,
        terminating=bool(meta.deletion_timestamp),
        annotations=meta.annotations or {},
        labels=meta.labels or {},
        containers=_containers(spec.containers),
        init_containers=_containers(spec.init_containers),
        ephemeral_containers=_containers(spec.ephemeral_containers),
        scheduler_name=spec.scheduler_name or "",
        priority=spec.priority or 0,
        creation=meta.creation_timestamp or "",
        resource_version=meta.resource_version,
        reason=status.reason or "",
        message=status.message or "",
        owner=_controller(meta.owner_references) if meta.owner_references else "",
        gated=bool(spec.scheduling_gates),
        nominated=NodeName(status.nominated_node_name or ""),
        requests=requested(spec.resources),
        overhead=spec.overhead or {},
        constraints=constraints,
        claims=_claims(spec, status),
        named_claims=_named(spec.resource_claims) if spec.resource_claims else (),
        claim_templates=_templates(spec.resource_claims) if spec.resource_claims else (),
        pod_group=(group.pod_group_name or "") if (group := spec.scheduling_group) else "",
        unschedulable=not spec.node_name and _tried_in_vain(status.conditions),
        start=status.start_time or "",
    )


def _tried_in_vain(conditions: msgspec.Raw) -> bool:
    """PodScheduled is False: kube-scheduler sets it when a pod fits nowhere."""
    if len(conditions) <= len(NO_CONDITIONS):
        return False
    return any(
        each.type == "PodScheduled" and each.status == "False"
        for each in decoded(_CONDITIONS, conditions, "no conditions") or ()
    )


def _claims(spec: SpecObject, status: StatusObject) -> tuple[str, ...]:
    made = status.extended_resource_claim_status
    if not (made or spec.resource_claims or status.resource_claim_statuses):
        return ()
    own = [made] if made else []
    return _named([*(spec.resource_claims or ()), *(status.resource_claim_statuses or ()), *own])


def _named(claims: Iterable[_ClaimName]) -> tuple[str, ...]:
    names = [each.resource_claim_name for each in claims if each.resource_claim_name]
    return tuple(dict.fromkeys(names))


def _templates(claims: Iterable[_ClaimName]) -> tuple[str, ...]:
    names = [each.resource_claim_template_name for each in claims]
    return tuple(filter(None, names))


def requested(resources: ContainerResources | PodResources | None) -> Amounts:
    """Requests; a limit without a request is also the request."""
    if resources is None:
        return {}
    return {**(resources.limits or {}), **(resources.requests or {})}


def _controller(owners: Iterable[_Owner]) -> str:
    return next((owner.uid for owner in owners if owner.controller), "")


def _containers(found: tuple[ContainerObject, ...] | None) -> tuple[Container, ...]:
    return tuple([_container(each) for each in found]) if found else ()


def _container(container: ContainerObject) -> Container:
    resources, env, sources = container.resources, container.env, container.env_from
    return Container(
        name=container.name,
        limits=(resources.limits if resources else None) or {},
        requests=(resources.requests if resources else None) or {},
        restart_policy=container.restart_policy or "",
        env=tuple([each.name for each in env if not _hides_gpus(each)]) if env else (),
        env_prefixes=tuple([each.prefix for each in sources if each.prefix]) if sources else (),
    )


def _hides_gpus(variable: _Env) -> bool:
    return (
        variable.name == ENV_VISIBLE_DEVICES
        and variable.value_from is None
        and variable.value in NO_DEVICES
    )
