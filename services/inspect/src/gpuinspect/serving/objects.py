"""The few fields of Deployments, Services and pods that tell what serves; others are skipped."""

from typing import Any

import msgspec


class Resources(msgspec.Struct, frozen=True):
    """Of a container; amounts are texts, or numbers where a template is not normalised."""

    limits: dict[str, Any] = {}


class Container(msgspec.Struct, frozen=True):
    """Of a pod template."""

    resources: Resources = Resources()


class Metadata(msgspec.Struct, frozen=True):
    """Of any object."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class PodSpec(msgspec.Struct, frozen=True):
    """Of a pod template."""

    containers: list[Container] = []


class Template(msgspec.Struct, frozen=True):
    """Of a Deployment."""

    spec: PodSpec = PodSpec()


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """Which pods are a Deployment's."""

    match_labels: dict[str, str] = {}


class DeploymentSpec(msgspec.Struct, frozen=True):
    """What is wanted."""

    replicas: int = 1
    selector: Selector = Selector()
    template: Template = Template()


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What there is."""

    available_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True):
    """One Deployment."""

    metadata: Metadata
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class Port(msgspec.Struct, frozen=True):
    """Of a Service."""

    port: int
    name: str = ""


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a Service answers."""

    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: list[Port] = []


class Service(msgspec.Struct, frozen=True):
    """One Service."""

    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What kubelet says of a container."""

    ready: bool = False
    restart_count: int = 0


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What kubelet says of a pod."""

    phase: str = ""
    container_statuses: list[ContainerStatus] = []


class PodStatusObject(msgspec.Struct, frozen=True):
    """One pod, read for its status alone."""

    status: PodStatus = PodStatus()


class Items(msgspec.Struct, frozen=True):
    """One page of a list."""

    items: list[msgspec.Raw] = []
