"""The input of the checks: the ledger, and fields of raw objects beyond it."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, PodRequest
from gpucore.units import NodeName
from gpucore.wire.names import ENV_VISIBLE_DEVICES, LABEL_SHARE, LABEL_TOPOLOGY, Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.extenders import extenders
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.release import KUBE_SYSTEM, release_namespaces
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.doctor.exempt import exempt_namespaces
from gpuinspect.doctor.rawobjects import DoctorPodFacts, pod_facts
from gpukube.plugin_pods import COMPONENT, PLUGIN, mounts_kubelet_sockets

_WEBHOOK: Final = "webhook"
_ORIGINAL_LABEL: Final = "component"
_ORIGINAL_PLUGIN: Final = "gpushare-device-plugin"
_ORIGINAL_EXTENDER: Final = "gpushare-schd-extender"


class Evidence:
    """The objects of one snapshot that the checks read; nothing is decided here."""

    def __init__(self, snapshot: Snapshot, names: Names) -> None:
        self.snapshot = snapshot
        self.names = names
        self.ledger: Ledger = ledger_of(snapshot, names)

    @property
    def node_infos(self) -> Mapping[NodeName, NodeInfo]:
        """The state of every node, and of removed ones that still have allocations."""
        return self.ledger.nodes()

    @cached_property
    def labelled(self) -> tuple[Node, ...]:
        """Nodes labelled to offer shares or exclusive GPUs, by name."""
        chosen = (n for n in self.snapshot.nodes if wants_shares(n) or offers_gpus(n))
        return tuple(sorted(chosen, key=lambda node: node.name))

    @cached_property
    def sharing(self) -> tuple[tuple[Node, NodeInfo], ...]:
        """Nodes that offer shares or exclusive GPUs, with their state, by name."""
        pairs = ((node, self.node_infos[node.name]) for node in self.snapshot.nodes)
        offering = (p for p in pairs if p[1].shape.offers_shares or p[1].shape.offers_gpus)
        return tuple(sorted(offering, key=lambda pair: pair[0].name))

    @cached_property
    def offering(self) -> tuple[tuple[Node, NodeInfo], ...]:
        """Nodes that offer GPUs, to the device plugin or as claims, with their state, by name."""
        pairs = ((node, self.node_infos[node.name]) for node in self.snapshot.nodes)
        shared = {node.name for node, _ in self.sharing}
        offering = (pair for pair in pairs if pair[1].shape.claims or pair[0].name in shared)
        return tuple(sorted(offering, key=lambda pair: pair[0].name))

    def by_claim(self, allocation: Allocation) -> bool:
        """The pod's extended resource is allocated by a claim: its own annotations do not count."""
        return self.node_infos[allocation.placement.node].by_claim(allocation)

    @cached_property
    def pod_requests(self) -> tuple[tuple[Pod, PodRequest], ...]:
        """Pods that request a gpushare resource and have not ended."""
        requested = ((pod, pod_request_of(pod, self.names)) for pod in self.snapshot.pods)
        return tuple((pod, d) for pod, d in requested if d is not None and not pod.finished)

    @cached_property
    def waiting(self) -> tuple[tuple[Pod, PodRequest], ...]:
        """The pods among :attr:`pod_requests` that are bound to no node."""
        return tuple(pair for pair in self.pod_requests if not pair[0].node)

    @cached_property
    def choosers(self) -> tuple[Pod, ...]:
        """Pods with a variable that may choose GPUs, among those that have no right to it.

        Without a request, a pod can use the GPUs of nodes that offer shares or exclusive GPUs.
        """
        requesting = {pod.uid for pod, _ in self.pod_requests}
        nodes = {node.name for node in (*self.labelled, *(node for node, _ in self.sharing))}
        found = [pod for pod in self.snapshot.pods if not pod.finished and _sets_gpus(pod)]
        exempt = exempt_namespaces(self.snapshot) if found else ()
        return tuple(
            pod
            for pod in found
            if pod.uid in requesting or (pod.node in nodes and pod.namespace not in exempt)
        )

    def raw(self, pod: Pod) -> msgspec.Raw:
        """The raw object of ``pod``."""
        return self.snapshot.raw_by_uid[pod.uid]

    def facts(self, pod: Pod) -> DoctorPodFacts:
        """What the checks read of the raw object of ``pod``."""
        return pod_facts(self.raw(pod))

    @cached_property
    def plugins(self) -> tuple[Pod, ...]:
        """Pods of the device plugin, of gpushare or of the original."""
        live = (pod for pod in self.snapshot.pods if not pod.finished and _named_a_plugin(pod))
        return tuple(pod for pod in live if self.serves_kubelet(pod))

    @cached_property
    def extenders(self) -> tuple[Pod, ...]:
        """Pods with the scheduler extender in them, of gpushare or of the original."""
        return (*(pod for pod, _ in extenders(self.snapshot)), *self._original_extenders())

    @cached_property
    def webhooks(self) -> tuple[Pod, ...]:
        """Pods of the webhook, in the namespace of the release."""
        trusted = release_namespaces(self.snapshot)
        found = (pod for pod in self.snapshot.pods if pod.labels.get(COMPONENT) == _WEBHOOK)
        return tuple(pod for pod in found if pod.namespace in trusted and not pod.finished)

    def serves_kubelet(self, pod: Pod) -> bool:
        """The pod can be a device plugin. Its labels do not show that: any tenant can set them."""
        return mounts_kubelet_sockets(self.raw(pod))

    def _original_extenders(self) -> Iterator[Pod]:
        trusted = {*release_namespaces(self.snapshot), KUBE_SYSTEM}
        for pod in self.snapshot.pods:
            named = pod.labels.get(_ORIGINAL_LABEL) == _ORIGINAL_EXTENDER
            if named and pod.namespace in trusted and not pod.finished:
                yield pod


def _sets_gpus(pod: Pod) -> bool:
    boxes = (*pod.containers, *pod.init_containers, *pod.ephemeral_containers)
    return any(ENV_VISIBLE_DEVICES in box.env for box in boxes)


def _named_a_plugin(pod: Pod) -> bool:
    if pod.labels.get(_ORIGINAL_LABEL) == _ORIGINAL_PLUGIN:
        return True
    ours = pod.labels.get(COMPONENT) == PLUGIN
    return ours and any(box.name == PLUGIN for box in pod.containers)


def wants_shares(node: Node) -> bool:
    """The node is labelled to offer shares."""
    return node.labels.get(LABEL_SHARE) == "true"


def offers_gpus(node: Node) -> bool:
    """The node is labelled to offer exclusive GPUs by topology."""
    return node.labels.get(LABEL_TOPOLOGY) == "true"


def called(pod: Pod | Allocation) -> str:
    """``namespace/name``."""
    return f"{pod.namespace}/{pod.name}"
