"""``gpushare node-template``: the template of a group for an autoscaler that grows it from zero."""

import re
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from gpucore.wire.node.group_template import (
    GroupTemplate,
    autoscaling_tags,
    group_template,
    karpenter_objects,
)
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, Output, emit, names_only
from gpuinspect.commands.options.kinds import node_name
from gpuinspect.commands.options.reading import Reader, fail, note, reading
from gpuinspect.documents.nodetemplate import node_template_document
from gpuinspect.errors import similar_names


class Autoscaler(StrEnum):
    """Values of ``--for``."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


@reading
def node_template(
    reader: Reader,
    node: Annotated[
        str,
        typer.Argument(
            help="node to take as the model of the group's nodes",
            metavar="NODE",
            autocompletion=answers.nodes,
            callback=node_name,
        ),
    ],
    *,
    autoscaler: Annotated[
        Autoscaler, typer.Option("--for", help="autoscaler whose configuration to print")
    ] = Autoscaler.CLUSTER_AUTOSCALER,
    output: Output = Format.TABLE,
) -> None:
    """Print the labels, taints and amounts that an autoscaler needs of a group without nodes.

    For cluster-autoscaler the tags of an Auto Scaling group, one KEY=VALUE a line; for Karpenter
    a NodePool and a NodeOverlay, in YAML.
    """
    nodes = {each.name: each for each in reader.source.read().nodes}
    found = nodes.get(node)  # type: ignore[call-overload]
    if found is None:
        fail(f'nodes "{node}" not found{similar_names(node, nodes)}')
    template = group_template(found, reader.names)
    if not template.resources:
        fail(f"node {node} offers no GPUs: the device plugin does not run there, or has found none")
    karpenter = autoscaler is Autoscaler.KARPENTER
    objects = _karpenter(template, node) if karpenter else []
    if output.is_document:
        emit(node_template_document(node, template, objects), output)
    elif output is Format.NAME:
        names_only("node", [node])
    elif karpenter:
        sys.stdout.write(yaml.safe_dump_all(objects, sort_keys=False))
        note("note: add the rest of the NodePool; NodeOverlay needs Karpenter's feature gate of it")
    else:
        sys.stdout.writelines(f"{k}={v}\n" for k, v in autoscaling_tags(template).items())


def _karpenter(template: GroupTemplate, node: str) -> list[dict[str, Any]]:
    if not template.instance_type:
        fail(f"node {node} has no label node.kubernetes.io/instance-type, which Karpenter needs")
    name = re.sub(r"[^a-z0-9-]+", "-", f"gpushare-{template.instance_type}".lower())
    return list(karpenter_objects(template, name))
