"""The claims that hold GPUs of this node: those that are prepared for kubelet.

It imports nothing of the formats of claims: on a node that offers devices there are none.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from gpucore.model import Gpu
from gpucore.units import MIB_BYTES, GpuUuid, PodUid
from gpucore.wire.pod.spec import Pod

if TYPE_CHECKING:
    from gpucore.node.claims.prepared import PreparedClaim


class HeldClaims:
    """Prepared claims by UID, and what they hold of which GPU."""

    def __init__(self) -> None:
        self._claims: dict[str, PreparedClaim] = {}

    def __iter__(self) -> "Iterator[PreparedClaim]":
        """The claims, in the order in which they were noted."""
        return iter(self._claims.values())

    def __bool__(self) -> bool:
        """Any claim is prepared."""
        return bool(self._claims)

    def __len__(self) -> int:
        """How many claims are prepared."""
        return len(self._claims)

    def __contains__(self, uid: str) -> bool:
        """The claim is prepared."""
        return uid in self._claims

    @property
    def names(self) -> list[str]:
        """``<namespace>/<name>`` of every prepared claim."""
        return [f"{each.namespace}/{each.name}" for each in self._claims.values()]

    @property
    def uids(self) -> frozenset[str]:
        """UIDs of the prepared claims."""
        return frozenset(self._claims)

    def put(self, claim: "PreparedClaim") -> bool:
        """Note a prepared claim; false where that is no news."""
        known = self._claims.get(claim.uid)
        self._claims[claim.uid] = claim
        return known != claim

    def drop(self, uid: str) -> bool:
        """Note that a claim is not prepared any more; false where that is no news."""
        return self._claims.pop(uid, None) is not None

    def on(self, uuid: GpuUuid) -> bool:
        """Some claim holds a part of this GPU."""
        return any(each.uuid == uuid for held in self._claims.values() for each in held.devices)

    def uses(self, pod: Pod) -> bool:
        """Some claim of the pod is prepared."""
        return any(_uses(pod, claim) for claim in self._claims.values())

    def gpus_of(self, pod: Pod) -> frozenset[str]:
        """UUIDs of the GPUs of the claims of a pod."""
        claims = (claim for claim in self._claims.values() if _uses(pod, claim))
        return frozenset(device.uuid for claim in claims for device in claim.devices)

    def bytes_on(self, gpu: Gpu, pods: Collection[Pod]) -> dict[PodUid, int]:
        """Bytes of the GPU that each pod holds; pods that use one claim have equal parts of it.

        Pods name their claims. Of several with one name all but the newest were deleted, and
        kubelet has yet to unprepare them: they are no pod's any more.
        """
        held: Counter[PodUid] = Counter()
        newest = {(claim.namespace, claim.name): claim for claim in self._claims.values()}
        for claim in newest.values():
            users = users_of(claim, pods)
            for uid in users:
                held[uid] += bytes_on(claim, gpu) // len(users)
        return {uid: size for uid, size in held.items() if size}


def users_of(claim: "PreparedClaim", pods: Iterable[Pod]) -> list[PodUid]:
    """The pods among these that use a claim and have not ended."""
    return [pod.uid for pod in pods if not pod.finished and _uses(pod, claim)]


def bytes_on(claim: "PreparedClaim", gpu: Gpu) -> int:
    """Bytes of the GPU that a claim holds; all of them where it has no share."""
    allocated = zip(claim.allocated.devices, claim.devices, strict=True)
    whole = gpu.allocatable_mib * MIB_BYTES
    return sum(
        whole if share.memory is None else share.memory
        for share, device in allocated
        if device.uuid == gpu.uuid
    )


def _uses(pod: Pod, claim: "PreparedClaim") -> bool:
    return pod.namespace == claim.namespace and claim.name in pod.claims
