"""Gang of a pod: its PodGroup, or the labels that training launchers set.

A PodGroup of Kubernetes goes before labels, because kube-scheduler then places the group in one
cycle. Of labels, one names the gang and another has its number of pods. Three pairs of labels mean
the same; of several pairs on one pod the first counts. A gang lives in one namespace; pods of two
namespaces never form one.
"""

from typing import Final

import msgspec

from gpucore.units import PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.names import GANG_LABELS, LWS_NAME, LWS_SIZE
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import number

GROUP_PREFIX: Final = "podgroup/"
"""Before the name of a PodGroup in the name of its gang; no label value can contain a slash."""


class Gang(msgspec.Struct, frozen=True):
    """A gang, as the labels of any of its pods describe it, or its PodGroup.

    Attributes:
        size: pods it has in all; of a PodGroup, the number that is placed together at least.
    """

    namespace: str
    name: str
    size: int

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def is_group(self) -> bool:
        """It is a PodGroup, whose pods kube-scheduler places in one cycle."""
        return self.name.startswith(GROUP_PREFIX)


def reservation_uid(gang: Gang, uid: PodUid) -> PodUid:
    """The UID of the place that is reserved for a pod of ``gang``, a PodGroup."""
    return PodUid(f"gang/{gang.namespace}/{gang.name}/{uid}")


def gang_of(pod: Pod) -> Gang | None:
    """The gang ``pod`` belongs to; ``None`` for a pod of its own, or of a gang of one.

    A pod does not have the size of its PodGroup: it is 1 here
    (:class:`gpucore.gang.pod_groups.PodGroups` has it).
    """
    if pod.pod_group:
        return Gang(pod.namespace, GROUP_PREFIX + pod.pod_group, 1)
    for name_label, size_label in GANG_LABELS:
        if name := pod.labels.get(name_label):
            size = _size(pod.labels.get(size_label))
            return Gang(pod.namespace, name, size) if size > 1 else None
    return None


def may_be_in_gang(pod: Pod) -> bool:
    """The pod is of a gang, or of a pod group whose label has no size: others may need it."""
    pair = next((pair for pair in GANG_LABELS if pod.labels.get(pair[0])), None)
    return gang_of(pod) is not None or (pair is not None and pair[1] not in pod.labels)


def restarts_others(pod: Pod) -> str:
    """Why other pods may restart where this one is evicted; empty where none do.

    A LeaderWorkerSet recreates a group by its restart policy, and workers end with their leader.
    """
    if LWS_NAME not in pod.labels or pod.annotations.get(LWS_SIZE) == "1":
        return ""
    return "its LeaderWorkerSet may restart all pods of its group"


def gang_fault(pod: Pod) -> str:
    """What is wrong with the labels, in words; empty is well."""
    for name_label, size_label in GANG_LABELS:
        if pod.labels.get(name_label):
            text = pod.labels.get(size_label)
            if _size(text) or (text is None and name_label != wire_names.GANG):
                return ""  # a pod group without a size has no minimum
            return f"its label {size_label} is not a number of pods from 1 to 1023"
    return ""


def _size(text: str | None) -> int:
    """Pods of the gang; 0 where the label is missing or no positive number."""
    return number(text or "", below=1 << 10) or 0
