"""Writes docs/reference/names.md: every name that the stack reads or writes on the cluster.

The names come from :mod:`gpucore.wire.names`, the only place that spells them; what is said of each
stands here. A name without a word, or a word without a name, is an error.
"""
# ruff: noqa: INP001 - a script beside the page, no package

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gpucore.wire import names

PAGE = Path(__file__).resolve().parents[1] / "reference" / "names.md"
HEAD: Final = """\
# Resources, annotations, labels and variables

Every name that the stack reads or writes, as it is with the default domain `aliyun.com` and prefix
`ALIYUN_COM`; the chart's `resourceDomain` and `annotationPrefix` change both. Made by
`python docs/generators/namepage.py` from the one file that spells them. Allocation annotations are
written by the scheduler and the device plugin; setting them by hand changes what is counted.
"""
OTHER: Final = frozenset(
    {
        "POLICY_NAMES",
        "TOPOLOGY_NAMES",
        "SCHEDULE_MPS",
        "REQUIRE_WHOLE_DEVICE",
        "UNHEALTHY_NAMESPACE",
        "UNHEALTHY_PREFIX",
        "UNHEALTHY_KEY",
        "MANAGED_BY",
        "PLUGIN",
        "LIMITING_ENV",
        "NO_DEVICES",
        "DEVICE_ID_SEPARATOR",
        "DEFAULT_NAMES",
    }
)
"""Values of the names below, and parts of names."""
_UNHEALTHY: Final = f"{names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}<node>"
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Resources": {
        "gpu_mem": "units of GPU memory; in a container's limits",
        "gpu_core": "percent of one card's compute, 100 a card; in a container's limits",
        "gpu": "whole cards; in a container's limits",
        "gpu_count": "cards of a node, for information; as a label of a pod: cards that its units "
        "are spread over, each the same part",
    },
    "What a pod may say": {
        "POLICY": f"annotation: {', '.join(names.POLICY_NAMES)}; goes before the node's",
        "TOPOLOGY": "annotation: how cards that go together are chosen: "
        f"{', '.join(names.TOPOLOGY_NAMES)}",
        "ISOLATION": "annotation of a pod: the rung it demands, `mps`; label of a node: its rung",
        "LABEL_REQUIRE_WHOLE": f"label: `{names.REQUIRE_WHOLE_DEVICE}` makes the GPU of a share "
        "exclusive; read at bind, a later change has no effect",
        "GANG": "label: name of the pods that are placed together or not at all",
        "GANG_REPLICA": "label: how many pods the gang has",
        "POD_GROUP": "label: name of a gang, as arena sets it",
        "POD_GROUP_SIZE": "label: how many pods that gang has",
        "ACK_POD_GROUP": "label: name of a gang, as the vendor's launchers set it",
        "ACK_POD_GROUP_SIZE": "label: how many pods that gang has",
        "LABEL_SERVING_NAME": "label: the model server's name, as arena sets it",
        "LABEL_SERVING_TYPE": "label: its kind, as arena sets it",
        "LABEL_SERVING_VERSION": "label: its version, as arena sets it",
    },
    "What a pod is given": {
        "RETRY": "when the extender last sent the pod back to its scheduler; nothing reads it",
        "mem_idx": "index of its card",
        "mem_dev": "units of that card",
        "mem_pod": "units of the pod",
        "mem_assigned": "`false` at bind, `true` when the node has handed the card out",
        "mem_assume_time": "Unix time of the decision, in nanoseconds",
        "V2_ALLOCATION": 'JSON: container to card to units, `{"0":{"1":4}}`',
        "V2_ASSIGNED": "as the first generation's",
        "V2_ASSUME_TIME": "as the first generation's",
        "group": "whole cards: indexes with commas between",
        "group_assigned": "whole cards: as for shares",
        "group_assume_time": "whole cards: as for shares",
        "GPU_GROUP": "whole cards: the same indexes, in the annotation that arena reads; counts "
        "where the first generation's is absent",
        "GPU_VISIBLE": "written only, for arena: GPUs that the pod sees, the same indexes",
        "UNIT": "the unit of its amounts, that of the node it was bound to",
        "EXCLUSIVE": "`true`: a share that has its GPU alone, as its label requested at bind",
        "V3_MEMORY": "read only: as the second generation's allocation",
        "V3_CORE_PERCENTAGE": "JSON: container to card to percent of compute",
        "V3_ASSIGNED": "read only",
        "V3_ASSUME_TIME": "read only",
    },
    "Labels of nodes": {
        "LABEL_SHARE": "`true`: the node offers shares of memory and compute",
        "LABEL_TOPOLOGY": "`true`: the node offers whole cards",
        "LABEL_PLACEMENT": "card choice on this node: binpack, spread or fragmentation",
        "LABEL_MAX_POD": "most pods on one card",
        "LABEL_OVERSELL": "factor that memory is multiplied by",
        "LABEL_SCHEDULE": f"`{names.SCHEDULE_MPS}` turns MPS on for the node",
        "LABEL_CGPU_DISABLE": f"`true` sets {names.ENV_CGPU_DISABLE} in containers",
        "INVENTORY_HASH": "written by the plugin with every inventory: schedulers try waiting pods "
        "again when a label changes, not when an annotation does",
    },
    "Annotations of nodes": {
        "INVENTORY": "versioned JSON: unit, and for every card index, UUID, model, units, NUMA "
        "node, health and mode; links between cards",
        "CARD_ISOLATION": "rung by card, such as `0=mps,1=none`",
        "NODE_TOPOLOGY": "the links, as the topology plugin of 2019 wrote them",
        "NODE_TYPE": "machine type, which the static policy goes by",
    },
    "Holding NVIDIA's device plugin": {
        "NVIDIA_DEPLOY_PLUGIN": "node label: `false` keeps the GPU operator's device plugin away",
        "NVIDIA_HELD_AFFINITY": "annotation of a DaemonSet: JSON of the affinity that it had "
        "before `gpushare hold-nvidia-plugin`",
        "NVIDIA_HELD_LABEL": "node annotation: JSON of the label's value before",
    },
    "Variables in containers": {
        "ENV_VISIBLE_DEVICES": "the container's cards, as UUIDs (or indexes, on request)",
        "mem_container": "units of this container",
        "mem_idx": "index of its card",
        "mem_dev": "units of that card",
        "mem_pod": "units of the pod",
        "ENV_MEM_FRACTION": "the container's part of the card's memory, 0 to 1",
        "ENV_MEM_LIMIT_MIB": "the same in MiB",
        "ENV_PROCESS_FRACTION": "the same part less what a process needs beside its data",
        "group": "whole cards: indexes with commas between",
        "ENV_MPS_THREADS": "MPS: percent of the card's threads, at least 1",
        "ENV_MPS_MEMORY": "MPS: memory limit of each process, by card as the container sees it",
        "ENV_MPS_PIPE": "MPS: where the card's control daemon is reached",
        "ENV_CGPU_DISABLE": "`true` on nodes labelled so",
    },
}
TAIL: Final = f"""
## Objects

The ConfigMap `{_UNHEALTHY}` lists indexes of sick cards under the key `{names.UNHEALTHY_KEY}`, with
commas between. The scheduler honours what somebody wrote there. The chart's
`devicePlugin.unhealthyConfigMap` makes the plugin write it too, for an original extender; ours
passes over that, since the node's inventory says the same.

Devices that kubelet counts are called `<uuid>{names.DEVICE_ID_SEPARATOR}<n>`.
"""


def page() -> str:
    """The page as it should be.

    Raises:
        KeyError: the names and what is said of them differ; carries the difference.
    """
    said = {key for section in SECTIONS.values() for key in section}
    if said ^ set(spelled()):
        raise KeyError(*sorted(said ^ set(spelled())))
    return HEAD + "".join(_section(title, rows) for title, rows in SECTIONS.items()) + TAIL


def spelled() -> dict[str, str]:
    """Every name of the cluster's objects, by what the code calls it."""
    fixed = {key: value for key, value in vars(names).items() if key.isupper()}
    found = {key: value for key, value in fixed.items() if key not in OTHER}
    return found | dict(_of_domain())


def _of_domain() -> Iterator[tuple[str, str]]:
    """Names that follow from the domain and the prefix."""
    for key, attribute in vars(names.Names).items():
        if isinstance(attribute, property):
            yield key, getattr(names.DEFAULT_NAMES, key)


def _section(title: str, rows: Mapping[str, str]) -> str:
    known = spelled()
    body = "".join(f"| `{known[key]}` | {text} |\n" for key, text in rows.items())
    return f"\n## {title}\n\n| name | meaning |\n|---|---|\n{body}"


if __name__ == "__main__":
    PAGE.write_text(page())
