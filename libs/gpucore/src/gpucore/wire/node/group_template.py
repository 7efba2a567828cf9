"""The node template of a group for an autoscaler, so that it can grow from no nodes.

An autoscaler simulates pods on a node that does not exist, from labels, taints and amounts that an
operator writes at the group. It compares sums of resources, and cannot see which GPU has them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpucore.model.constraints import Taint
from gpucore.wire import names as wire_names
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node

TAG: Final = "k8s.io/cluster-autoscaler/node-template"
"""Prefix of the tags that cluster-autoscaler reads at an Auto Scaling group."""
_LABELS: Final = (
    wire_names.LABEL_SHARE,
    wire_names.LABEL_TOPOLOGY,
    wire_names.LABEL_PLACEMENT,
    wire_names.LABEL_MAX_POD,
    wire_names.LABEL_OVERSELL,
    wire_names.LABEL_SCHEDULE,
    wire_names.LABEL_CGPU_DISABLE,
    wire_names.ISOLATION,
    wire_names.API,
)
"""Labels of this project that an operator sets, or that follow from what an operator sets."""
_OF_ITSELF: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that come and go with the state of a node."""
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


class GroupTemplate(msgspec.Struct, frozen=True):
    """Of a group of equal nodes.

    Attributes:
        instance_type: of the machine; empty unknown.
        resources: amounts of our resources.
    """

    instance_type: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    resources: Mapping[str, str]


def group_template(node: Node, names: Names) -> GroupTemplate:
    """The template of a group whose nodes are like this one."""
    ours = (names.gpu_mem, names.gpu_core, names.gpu)
    amounts = {name: node.capacity.get(name, "0") for name in ours}
    return GroupTemplate(
        instance_type=node.labels.get(INSTANCE_TYPE, ""),
        labels={name: node.labels[name] for name in _LABELS if name in node.labels},
        taints=lasting(node.taints),
        resources={name: amount for name, amount in amounts.items() if amount != "0"},
    )


def lasting(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that an equal node has too: those that do not follow from a node's state."""
    return tuple(taint for taint in taints if not taint.key.startswith(_OF_ITSELF))


def autoscaling_tags(template: GroupTemplate) -> dict[str, str]:
    """Tags of an Auto Scaling group, for cluster-autoscaler."""
    labels = {f"{TAG}/label/{name}": value for name, value in template.labels.items()}
    taints = {f"{TAG}/taint/{t.key}": f"{t.value}:{t.effect}" for t in template.taints}
    amounts = {f"{TAG}/resources/{name}": amount for name, amount in template.resources.items()}
    return labels | taints | amounts


def karpenter_objects(template: GroupTemplate, name: str) -> list[dict[str, Any]]:
    """The parts of a NodePool that follow from the template, and a NodeOverlay with the amounts."""
    kind = {"key": INSTANCE_TYPE, "operator": "In", "values": [template.instance_type]}
    taints = [
        {"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {})
        for t in template.taints
    ]
    spec: dict[str, Any] = {"requirements": [kind]} | ({"taints": taints} if taints else {})
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": dict(template.labels)}, "spec": spec}},
    }
    overlay = {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": [kind], "capacity": dict(template.resources)},
    }
    return [pool, overlay]
