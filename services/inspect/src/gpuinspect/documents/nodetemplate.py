"""JSON and YAML of ``gpushare node-template``."""

from typing import Any

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpucore.wire.node.group_template import GroupTemplate, autoscaling_tags


class TaintDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A taint of the group's nodes."""

    key: str
    value: str
    effect: str


class NodeTemplateDoc(Document, frozen=True):
    """The answer of ``gpushare node-template -o json``.

    ``tags`` are those of an Auto Scaling group; ``objects`` are Karpenter's, with ``--for
    karpenter`` only.
    """

    node: str
    instance_type: str
    labels: dict[str, str]
    taints: list[TaintDoc]
    resources: dict[str, str]
    tags: dict[str, str]
    objects: list[dict[str, Any]]


def node_template_document(
    node: str, template: GroupTemplate, objects: list[dict[str, Any]]
) -> NodeTemplateDoc:
    """The document of a group whose nodes are like this one."""
    return NodeTemplateDoc(
        API_VERSION,
        "NodeTemplate",
        node=node,
        instance_type=template.instance_type,
        labels=dict(template.labels),
        taints=[TaintDoc(t.key, t.value, str(t.effect)) for t in template.taints],
        resources=dict(template.resources),
        tags=dict(autoscaling_tags(template)),
        objects=objects,
    )
