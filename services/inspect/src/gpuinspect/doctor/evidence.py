"""What the checks look at: the books, and what raw objects say beyond them."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from gpucore.account import NodeAccount
from gpucore.ledger import Ledger
from gpucore.model import Demand
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import LABEL_SHARE, LABEL_TOPOLOGY, Names
from gpucore.wire.nodes import Node
from gpucore.wire.pods import demand_of
from gpucore.wire.podspec import Pod
from gpuinspect.doctor.rawobjects import NodeInfo, PodFacts, node_info, pod_facts
from gpuinspect.snapshots import Snapshot
from gpuinspect.state import books

_COMPONENT: Final = "app.kubernetes.io/component"
_ORIGINAL_PLUGIN: Final = "gpushare-device-plugin"
_ORIGINAL_EXTENDER: Final = "gpushare-schd-extender"


class Evidence:
    """One snapshot, read as far as the checks ask; nothing here judges."""

    def __init__(self, snapshot: Snapshot, names: Names) -> None:
        self.snapshot = snapshot
        self.names = names
        self.ledger: Ledger = books(snapshot, names)

    @property
    def accounts(self) -> Mapping[NodeName, NodeAccount]:
        """The books of every node, and of vanished ones that are still claimed."""
        return self.ledger.nodes()

    @cached_property
    def labelled(self) -> tuple[Node, ...]:
        """Nodes that should offer something of ours, by name."""
        chosen = (n for n in self.snapshot.nodes if wants_shares(n) or wants_cards(n))
        return tuple(sorted(chosen, key=lambda node: node.name))

    @cached_property
    def sharing(self) -> tuple[tuple[Node, NodeAccount], ...]:
        """Nodes that offer shares or whole cards, with their books, by name."""
        pairs = ((node, self.accounts[node.name]) for node in self.snapshot.nodes)
        offering = (p for p in pairs if p[1].shape.offers_shares or p[1].shape.offers_cards)
        return tuple(sorted(offering, key=lambda pair: pair[0].name))

    @cached_property
    def demands(self) -> tuple[tuple[Pod, Demand], ...]:
        """Pods that ask for something of ours and have not ended."""
        asked = ((pod, demand_of(pod, self.names)) for pod in self.snapshot.pods)
        return tuple((pod, d) for pod, d in asked if d is not None and not pod.finished)

    @cached_property
    def waiting(self) -> tuple[tuple[Pod, Demand], ...]:
        """Of these, the ones that no node has."""
        return tuple(pair for pair in self.demands if not pair[0].node)

    @cached_property
    def _places(self) -> Mapping[PodUid, int]:
        return {pod.uid: place for place, pod in enumerate(self.snapshot.pods)}

    def facts(self, pod: Pod) -> PodFacts:
        """What the raw object says about ``pod``."""
        return pod_facts(self.snapshot.all("Pod")[self._places[pod.uid]])

    @cached_property
    def node_infos(self) -> Mapping[NodeName, NodeInfo]:
        """Versions of every node."""
        raws = self.snapshot.all("Node")
        return {n.name: node_info(raw) for n, raw in zip(self.snapshot.nodes, raws, strict=True)}

    @cached_property
    def plugins(self) -> tuple[Pod, ...]:
        """Pods of the device plugin, ours or the original."""
        return tuple(self._component("device-plugin", "device-plugin", _ORIGINAL_PLUGIN))

    @cached_property
    def extenders(self) -> tuple[Pod, ...]:
        """Pods with the scheduler extender in them, ours or the original."""
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
    """It is labelled to offer shares."""
    return node.labels.get(LABEL_SHARE) == "true"


def wants_cards(node: Node) -> bool:
    """It is labelled to offer whole cards by topology."""
    return node.labels.get(LABEL_TOPOLOGY) == "true"


def called(pod: Pod) -> str:
    """``namespace/name``."""
    return f"{pod.namespace}/{pod.name}"
