"""What a pod requires of a node besides GPUs, and what a node offers, in kube-scheduler's terms.

Amounts of cpu are in thousandths of a core, all others in whole units (bytes for memory). What a
pod requires is hashable, so that pods of one template share what is worked out for them.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.units import NodeName

Resources = tuple[tuple[str, int], ...]
"""Amounts by resource name, sorted by name."""

CPU: Final = "cpu"
PODS: Final = "pods"
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

MOST_COMPARED: Final = 1000
"""Size of the constraints of a pod: a scheduler waits while they are compared with one node."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
"""A number as Go reads it; ``int`` also takes underscores, spaces and other digits."""


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a node or of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As ``kubectl taint`` spells it."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True):
    """A toleration of a pod or a claim; an empty key with ``Exists`` tolerates every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it matches this taint."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in {"", "Equal"} and bool(self.key) and self.value == taint.value


class Requirement(msgspec.Struct, frozen=True):
    """One requirement on a label (or field) of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As in a label selector, e.g. ``gpu in (t4, a10)``."""
        words = {"In": "in", "NotIn": "not in", "Gt": ">", "Lt": "<"}
        if self.operator in {"Exists", "DoesNotExist"}:
            return f"{'' if self.operator == 'Exists' else '!'}{self.key}"
        if self.operator in {"Gt", "Lt"}:
            return f"{self.key} {words[self.operator]} {''.join(self.values)}"
        return f"{self.key} {words.get(self.operator, self.operator)} ({', '.join(self.values)})"

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet it, by the API's own rules."""
        value = labels.get(self.key)
        if self.operator in {"DoesNotExist", "NotIn"}:
            return value is None or (self.operator == "NotIn" and value not in self.values)
        if value is None:
            return False
        if self.operator == "Exists":
            return True
        if self.operator == "In":
            return value in self.values
        return self._compared(value)

    def _compared(self, value: str) -> bool:
        texts = (value, *self.values)
        if self.operator not in {"Gt", "Lt"} or len(texts) != 2 or not all(map(_WHOLE, texts)):
            return False
        found, bound = map(int, texts)
        return found > bound if self.operator == "Gt" else found < bound


class NodeSelectorTerm(msgspec.Struct, frozen=True):
    """Requirements that must all hold; a term without any matches no node.

    Attributes:
        labels: on labels of the node.
        fields: on fields of the node; the API supports ``metadata.name`` only.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        """All requirements, joined by commas."""
        return ", ".join(map(str, (*self.labels, *self.fields)))

    def matches(self, node: "CandidateNode") -> bool:
        """Whether the node meets every requirement."""
        if not self.labels and not self.fields:
            return False
        fields = {"metadata.name": node.name}
        return all(each.holds(node.labels) for each in self.labels) and all(
            each.holds(fields) for each in self.fields
        )


class PodConstraints(msgspec.Struct, frozen=True):
    """What a pod requires of its node besides GPUs.

    Attributes:
        node_selector: labels that the node must have.
        affinity: terms of the required node affinity, of which one must match; ``None`` for none.
        requests: as kube-scheduler counts them, init containers, sidecars and overhead included.
        gates: names of its scheduling gates.
        unsupported: constraints that are not evaluated here, in words.
        preferences: soft constraints that the pod states, in words; kube-scheduler scores them.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    requests: Resources = ()
    gates: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of labels, values, tolerations and resources to compare with each node."""
        terms = self.affinity or ()
        each = [one for term in terms for one in (*term.labels, *term.fields)]
        values = sum(1 + len(one.values) for one in each)
        simple = (self.node_selector, self.tolerations, self.requests, terms)
        return values + sum(map(len, simple))


UNCONSTRAINED: Final = PodConstraints()
"""A pod that requires nothing besides GPUs."""


class CandidateNode(msgspec.Struct, frozen=True):
    """A node as kube-scheduler's filters see it.

    Attributes:
        allocatable: amounts by resource; a resource that is missing is not offered.
        requested: sum of the requests of the pods bound to it.
        pods: how many pods are bound to it.
    """

    name: NodeName
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, int] = {}
    requested: Mapping[str, int] = {}
    pods: int = 0

    @property
    def accepts_pods(self) -> bool:
        """It is ready and not cordoned."""
        return self.ready and not self.unschedulable

    def copy(self) -> "CandidateNode":
        """The node with amounts that do not change when those of this one do."""
        return msgspec.structs.replace(self, requested=dict(self.requested))

    def plus(self, requests: Resources, *, pods: int = 1) -> "CandidateNode":
        """The node with one more pod of these requests; ``pods=-1`` takes one away."""
        total = dict(self.requested)
        for name, amount in requests:
            total[name] = total.get(name, 0) + pods * amount
        return msgspec.structs.replace(self, requested=total, pods=self.pods + pods)
