"""The namespaces in which the stack runs, by objects that no tenant can write.

Any tenant can create a pod or a ConfigMap with the labels of the chart in a namespace of their own.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpucore.wire.objects import ObjectMetadata
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.snapshots import Snapshot
from gpukube.plugin_pods import COMPONENT, PLUGIN, plugin_addresses, plugin_namespace

KUBE_SYSTEM: Final = "kube-system"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""Label of every namespace."""
WEBHOOK_KIND: Final = "MutatingWebhookConfiguration"
_NAME: Final = "gpushare"


class _Service(msgspec.Struct):
    namespace: str = ""


class _ClientConfig(msgspec.Struct, rename="camel"):
    service: _Service | None = None
    ca_bundle: str | None = None


class SelectorRequirement(msgspec.Struct):
    """A condition on the labels of a namespace."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NamespaceSelector(msgspec.Struct, rename="camel"):
    """The namespaces of a webhook or an admission policy."""

    match_expressions: list[SelectorRequirement] | None = None


class OwnWebhook(msgspec.Struct, rename="camel"):
    """One webhook of a configuration."""

    name: str = ""
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)
    namespace_selector: NamespaceSelector = msgspec.field(default_factory=NamespaceSelector)
    failure_policy: str | None = None


class OwnWebhooks(msgspec.Struct):
    """A webhook configuration of the chart."""

    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    webhooks: list[OwnWebhook] | None = None


def own_webhooks(snapshot: Snapshot) -> Iterator[OwnWebhooks]:
    """The webhook configurations of the chart."""
    for raw in snapshot.all(WEBHOOK_KIND):
        found = msgspec.json.decode(raw, type=OwnWebhooks)
        if _NAME in found.metadata.name:
            yield found


def plugins_in(snapshot: Snapshot) -> Iterator[msgspec.Raw]:
    """The pods of the device plugins among all pods."""
    for pod, raw in snapshot.raw_pods():
        if pod.labels.get(COMPONENT) == PLUGIN:
            yield raw


def own_plugins(snapshot: Snapshot) -> Iterator[tuple[Pod, msgspec.Raw]]:
    """The pods of the device plugins that run: those of one namespace that mount kubelet's sockets.

    A tenant's pod may have their labels, and what it states of its node is not true.
    """
    found = plugin_addresses(plugins_in(snapshot))
    namespace = plugin_namespace(found)
    names = {each.pod for each in found if each.running and each.namespace == namespace}
    for pod, raw in snapshot.raw_pods():
        if pod.namespace == namespace and pod.name in names:
            yield pod, raw


def release_namespaces(snapshot: Snapshot) -> frozenset[str]:
    """The namespaces of our webhook's Service and of the device plugins; empty unknown."""
    hooks = (hook for found in own_webhooks(snapshot) for hook in found.webhooks or ())
    services = (hook.client_config.service for hook in hooks)
    found = {service.namespace for service in services if service is not None}
    found.add(plugin_namespace(plugin_addresses(plugins_in(snapshot))))
    return frozenset(found - {""})
