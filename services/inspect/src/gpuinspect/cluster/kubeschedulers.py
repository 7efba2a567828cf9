"""Pods of the cluster's own kube-scheduler, where they are visible, and the flags they run with.

A managed control plane does not show them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.extenders import flags_of
from gpuinspect.cluster.release import KUBE_SYSTEM
from gpuinspect.cluster.snapshots import Snapshot

KUBE_SCHEDULER: Final = "kube-scheduler"
"""Name of the container, and value of the label ``component`` that kubeadm gives the pod."""
INSTALL_FOLDER: Final = "/etc/kubernetes/gpushare"
"""Folder of the files of ``gpushare install-scheduler``, at the same path on node and in pod."""


def is_kube_scheduler(namespace: str, labels: Mapping[str, str]) -> bool:
    """The pod runs the cluster's own kube-scheduler; a tenant cannot create one there."""
    return namespace == KUBE_SYSTEM and labels.get("component") == KUBE_SCHEDULER


def kube_schedulers(snapshot: Snapshot) -> Iterator[tuple[Pod, Mapping[str, str]]]:
    """The pods with their flags; without those whose flags the snapshot does not have."""
    for pod, raw in snapshot.raw_pods():
        if is_kube_scheduler(pod.namespace, pod.labels) and not pod.finished:
            flags = flags_of(raw, KUBE_SCHEDULER)
            if flags:
                yield pod, flags
