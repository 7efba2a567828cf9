"""A prepared claim on a GPU of a test's node."""

from gpucore.model import Gpu
from gpucore.node.claims.prepared import PreparedClaim, PreparedDevice
from gpucore.wire.claim.devices import device_name
from gpucore.wire.claim.prepared import AllocatedClaim
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.names import CLAIM_DRIVER


def prepared(
    name: str, gpu: Gpu, gib: int, *, namespace: str = "team", node: str = "n1"
) -> PreparedClaim:
    """A share of a GPU for the claim of this name, whose UID is ``uid-<name>``."""
    device = device_name(gpu)
    share = DeviceShare("gpu", CLAIM_DRIVER, node, device, "s", memory=gib << 30)
    answer = PreparedDevice("gpu", node, device, "s", (), gpu.uuid)
    return PreparedClaim(namespace, name, AllocatedClaim(f"uid-{name}", (share,)), (answer,), "")
