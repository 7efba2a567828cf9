"""Checks of nodes: labels, kubelets, and what they offer."""

import re
from collections.abc import Iterator
from typing import Final

from gpucore.wire.names import API, API_CLAIMS
from gpucore.wire.quantity import amount
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, offers_gpus, wants_shares
from gpuinspect.queries.top import NVIDIA_GPU

OLDEST: Final = (1, 20)  # PodResources and GetPreferredAllocation, which agreement rests on
_MINOR: Final = re.compile(r"v?(\d+)\.(\d+)")
_RUNTIMES: Final = ("containerd://", "cri-o://", "docker://")

check = Checklist()


def minor(version: str) -> tuple[int, int] | None:
    """Major and minor of a version text."""
    match = _MINOR.match(version)
    return (int(match[1]), int(match[2])) if match else None


@check(
    "nodes-labelled",
    Level.FAIL,
    "a node is labelled to share its GPUs",
    do="kubectl label node NODE gpushare=true (or gputopology=true)",
)
def _labelled(evidence: Evidence) -> Iterator[str]:
    if not evidence.labelled:
        yield "no node is labelled gpushare=true or gputopology=true"


@check(
    "nodes-ready",
    Level.WARN,
    "labelled nodes are ready",
    do="look at the node's conditions with kubectl describe node",
)
def _ready(evidence: Evidence) -> Iterator[str]:
    yield from (f"{node.name} is not ready" for node in evidence.labelled if not node.ready)


@check(
    "nodes-schedulable",
    Level.WARN,
    "labelled nodes are schedulable",
    do="run kubectl uncordon NODE after its maintenance",
)
def _cordoned(evidence: Evidence) -> Iterator[str]:
    yield from (f"{node.name} is cordoned" for node in evidence.labelled if node.unschedulable)


@check(
    "kubelet-version",
    Level.FAIL,
    "kubelets support the PodResources API",
    do="upgrade kubelet to 1.20 or newer",
)
def _kubelet(evidence: Evidence) -> Iterator[str]:
    for node in evidence.labelled:
        version = minor(node.kubelet)
        if version is not None and version < OLDEST:
            yield f"{node.name} runs kubelet {node.kubelet}"


@check(
    "kubelet-skew",
    Level.WARN,
    "kubelets of labelled nodes have one version",
    do="finish the upgrade of the nodes",
)
def _skew(evidence: Evidence) -> Iterator[str]:
    texts = {node.kubelet for node in evidence.labelled}
    versions = {version for text in texts if (version := minor(text))}
    if len(versions) > 1:
        yield "kubelets of several minor versions: " + ", ".join(sorted(texts))


@check(
    "container-runtime",
    Level.WARN,
    "the container runtime is one that NVIDIA's toolkit supports",
    do="use containerd, CRI-O or Docker with the NVIDIA container toolkit",
)
def _runtime(evidence: Evidence) -> Iterator[str]:
    for node in evidence.labelled:
        if node.runtime and not node.runtime.startswith(_RUNTIMES):
            yield f"{node.name} runs {node.runtime}"


@check(
    "one-kind",
    Level.FAIL,
    "no node offers its GPUs twice",
    do="remove NVIDIA's device plugin or the label gpushare from the node",
)
def _two_kinds(evidence: Evidence) -> Iterator[str]:
    for node, node_info in evidence.offering:
        if amount(node.allocatable.get(NVIDIA_GPU, "0")):
            others = "exclusive GPUs" if node_info.shape.offers_gpus else "claims"
            kind = "shares" if node_info.shape.offers_shares else others
            yield f"{node.name} offers {NVIDIA_GPU} and {kind} of the same GPUs"


@check(
    "plugin-registered",
    Level.FAIL,
    "labelled nodes offer their resource",
    do="check that the device plugin's pod runs on the node, and read its log",
)
def _registered(evidence: Evidence) -> Iterator[str]:
    for node in evidence.labelled:
        shape = evidence.node_infos[node.name].shape
        if shape.claims or node.labels.get(API) == API_CLAIMS:
            continue
        if wants_shares(node) and not shape.offers_shares:
            yield f"{node.name} is labelled, but offers no {evidence.names.gpu_mem}"
        if offers_gpus(node) and not shape.offers_gpus:
            yield f"{node.name} is labelled, but offers no {evidence.names.gpu}"


@check(
    "no-stale-offer",
    Level.WARN,
    "only labelled nodes offer gpushare resources",
    do="label the node, or restart its kubelet after the plugin was removed",
)
def _stale(evidence: Evidence) -> Iterator[str]:
    known = {node.name for node in evidence.labelled}
    for node, _ in evidence.sharing:
        if node.name not in known:
            yield f"{node.name} offers GPUs, but is not labelled for it"


@check(
    "allocatable",
    Level.WARN,
    "kubelet offers the complete capacity of the node",
    do="look for unhealthy GPUs in the node's events; a plugin that is down withdraws all GPUs",
)
def _withdrawn(evidence: Evidence) -> Iterator[str]:
    for node, _ in evidence.sharing:
        for resource in (evidence.names.gpu_mem, evidence.names.gpu):
            have = amount(node.capacity.get(resource, "0"))
            left = amount(node.allocatable.get(resource, "0"))
            if left < have:
                yield f"{node.name}: kubelet offers {left} of {have} {resource}"
