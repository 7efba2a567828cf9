"""Pods that belong together, by the labels that training launchers set.

``gpu-topology`` names the gang and ``gpu-topology-replica`` says how many pods it has. A gang lives
in one namespace; pods of two namespaces never form one.
"""

import msgspec

from gpucore.wire.digits import number
from gpucore.wire.names import GANG, GANG_REPLICA
from gpucore.wire.podspec import Pod


class Gang(msgspec.Struct, frozen=True):
    """A gang, as any of its pods says it.

    Attributes:
        size: pods it has in all.
    """

    namespace: str
    name: str
    size: int


def gang_of(pod: Pod) -> Gang | None:
    """The gang ``pod`` belongs to; ``None`` for a pod of its own, or of a gang of one."""
    name = pod.labels.get(GANG)
    size = _size(pod) if name else 0
    return Gang(pod.namespace, name, size) if name and size > 1 else None


def gang_fault(pod: Pod) -> str:
    """What is wrong with the labels, in words; empty is well."""
    if not pod.labels.get(GANG) or _size(pod):
        return ""
    return f"its label {GANG_REPLICA} is no number of pods from 1 to 1023"


def _size(pod: Pod) -> int:
    """Pods of the gang; 0 where the label is missing or no positive number."""
    return number(pod.labels.get(GANG_REPLICA, ""), below=1 << 10) or 0
