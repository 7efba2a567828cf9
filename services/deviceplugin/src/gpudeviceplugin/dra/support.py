"""Whether the API server keeps what a ResourceSlice of GPU shares needs.

The version is not enough: feature gates can be off. The API server drops fields of a feature that
is off, so the reply to a dry run shows what it would store.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_slices import PATH, ResourceSlice, decode_slice, encode_slice
from gpucore.wire.names import CLAIM_DRIVER
from gpukube.errors import NotFoundError


class DryRuns(Protocol):
    """An API server that shows what it would store."""

    async def dry_run(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The object as it would be stored."""
        ...


async def has_consumable_capacity(kube: DryRuns, node: str) -> bool:
    """The API server has ResourceSlices whose devices can be allocated several times.

    Raises:
        KubeError: it does not answer, or refuses.
        WireError: the reply cannot be decoded.
    """
    device = SliceDevice("probe", index=0, uuid="probe", memory_mib=2, step_mib=1)
    probe = ResourceSlice(f"{node}-{CLAIM_DRIVER}-probe", CLAIM_DRIVER, node, node, (device,))
    try:
        reply = decode_slice(await kube.dry_run(PATH, encode_slice(probe)))
    except NotFoundError:
        return False
    return any(each.shared and each.step_mib for each in reply.devices)
