"""The fields of Deployments, Services and pods that identify model servers; others are skipped."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpucore.model.constraints import Requirement
from gpucore.wire.names import START_TURN_WORDS


class TemplateResources(msgspec.Struct, frozen=True):
    """Resource requests and limits of a container; numbers where a template is not normalised."""

    limits: dict[str, Any] = {}


class TemplateContainer(msgspec.Struct, frozen=True):
    """A container of a pod template."""

    resources: TemplateResources = TemplateResources()


class ServingObjectMeta(msgspec.Struct, frozen=True):
    """Metadata of an object."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class PodSpec(msgspec.Struct, frozen=True):
    """The specification of a pod template."""

    containers: list[TemplateContainer] = []


class Template(msgspec.Struct, frozen=True):
    """The pod template of a Deployment."""

    spec: PodSpec = PodSpec()


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """The label selector of a Deployment; the API server accepts no empty one."""

    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []

    @property
    def text(self) -> str:
        """As the API server takes it in a query."""
        return ",".join(self._terms())

    def _terms(self) -> Iterator[str]:
        yield from (f"{name}={value}" for name, value in sorted(self.match_labels.items()))
        for each in self.match_expressions:
            values = f"({','.join(each.values)})"
            yield f"{each.key} {each.operator.lower()} {values}" if each.values else str(each)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is one of the Deployment."""
        expressions = all(each.holds(labels) for each in self.match_expressions)
        return expressions and self.match_labels.items() <= labels.items()


class DeploymentSpec(msgspec.Struct, frozen=True):
    """The specification of a Deployment."""

    replicas: int = 1
    selector: Selector = Selector()
    template: Template = Template()


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a Deployment."""

    available_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True):
    """One Deployment."""

    metadata: ServingObjectMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class Port(msgspec.Struct, frozen=True):
    """A port of a Service."""

    port: int
    name: str = ""


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The specification of a Service."""

    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: list[Port] = []


class Service(msgspec.Struct, frozen=True):
    """One Service."""

    metadata: ServingObjectMeta
    spec: ServiceSpec = ServiceSpec()


class Waiting(msgspec.Struct, frozen=True):
    """Why a container does not run."""

    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    """The state of a container; only ``waiting`` is read."""

    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a container."""

    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    container_statuses: list[ContainerStatus] = []

    @property
    def waits_for_turn(self) -> bool:
        """The device plugin lets another pod start on the GPU first."""
        waiting = (each.state.waiting for each in self.container_statuses)
        return any(each is not None and START_TURN_WORDS in each.message for each in waiting)


class PodStatusObject(msgspec.Struct, frozen=True):
    """One pod, read for its status alone."""

    metadata: ServingObjectMeta
    status: PodStatus = PodStatus()
