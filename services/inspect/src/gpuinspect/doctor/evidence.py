"""The input of the checks: the ledger, and fields of raw objects beyond it."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, TypeVar

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import LABEL_SHARE, LABEL_TOPOLOGY, Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.doctor.rawobjects import DoctorPodFacts, NodeVersions, node_versions, pod_facts

T = TypeVar("T")
_COMPONENT: Final = "app.kubernetes.io/component"
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
    def pod_requests(self) -> tuple[tuple[Pod, PodRequest], ...]:
        """Pods that request a gpushare resource and have not ended."""
        requested = ((pod, pod_request_of(pod, self.names)) for pod in self.snapshot.pods)
        return tuple((pod, d) for pod, d in requested if d is not None and not pod.finished)

    @cached_property
    def waiting(self) -> tuple[tuple[Pod, PodRequest], ...]:
        """The pods among :attr:`pod_requests` that are bound to no node."""
        return tuple(pair for pair in self.pod_requests if not pair[0].node)

    @cached_property
    def _places(self) -> Mapping[PodUid, int]:
        return {pod.uid: place for place, pod in enumerate(self.snapshot.pods)}

    def facts(self, pod: Pod) -> DoctorPodFacts:
        """The raw object of ``pod``."""
        return pod_facts(self.snapshot.all("Pod")[self._places[pod.uid]])

    def decoded(self, pod: Pod, form: type[T]) -> T:
        """The raw object of ``pod``, as far as ``form`` has its fields."""
        return msgspec.json.decode(self.snapshot.all("Pod")[self._places[pod.uid]], type=form)

    @cached_property
    def versions_of_nodes(self) -> Mapping[NodeName, NodeVersions]:
        """Versions of every node."""
        raws = self.snapshot.all("Node")
        return {
            n.name: node_versions(raw) for n, raw in zip(self.snapshot.nodes, raws, strict=True)
        }

    @cached_property
    def plugins(self) -> tuple[Pod, ...]:
        """Pods of the device plugin, of gpushare or of the original."""
        return tuple(self._component("device-plugin", "device-plugin", _ORIGINAL_PLUGIN))

    @cached_property
    def extenders(self) -> tuple[Pod, ...]:
        """Pods with the scheduler extender in them, of gpushare or of the original."""
        beside = self._component("scheduler", "extender", _ORIGINAL_EXTENDER)
        return (*beside, *self._component("extender", "extender", "-"))

    def _component(self, component: str, container: str, original: str) -> Iterator[Pod]:
        for pod in self.snapshot.pods:
            ours = pod.labels.get(_COMPONENT) == component
            if pod.finished:
                continue
            if pod.labels.get("component") == original or (
                ours and any(box.name == container for box in pod.containers)
            ):
                yield pod


def wants_shares(node: Node) -> bool:
    """The node is labelled to offer shares."""
    return node.labels.get(LABEL_SHARE) == "true"


def offers_gpus(node: Node) -> bool:
    """The node is labelled to offer exclusive GPUs by topology."""
    return node.labels.get(LABEL_TOPOLOGY) == "true"


def called(pod: Pod) -> str:
    """``namespace/name``."""
    return f"{pod.namespace}/{pod.name}"
