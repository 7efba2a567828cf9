"""What the pods of a snapshot request by claims: DeviceClasses, claims and claim templates."""

from typing import Final

from gpucore.accounting.claim_offers import ClaimSpecs
from gpucore.wire.claim.claim_specs import (
    DeviceClass,
    decode_claim_spec,
    decode_device_class,
    decode_template,
)
from gpuinspect.cluster.collect import RESOURCE_API, ListRequest
from gpuinspect.cluster.snapshots import Snapshot

DEVICE_CLASSES: Final = ListRequest("DeviceClass", f"{RESOURCE_API}/deviceclasses", optional=True)


def claim_templates(namespace: str) -> ListRequest:
    """The templates of a namespace; empty for all."""
    inside = f"namespaces/{namespace}/" if namespace else ""
    path = f"{RESOURCE_API}/{inside}resourceclaimtemplates"
    return ListRequest("ResourceClaimTemplate", path, optional=True)


def device_classes(snapshot: Snapshot) -> dict[str, DeviceClass]:
    """The DeviceClasses by name."""
    found = map(decode_device_class, snapshot.all("DeviceClass"))
    return {each.name: each for each in found}


def claim_specs(snapshot: Snapshot) -> ClaimSpecs:
    """What claims and claim templates request, by namespace and name."""
    claims = snapshot.readable("ResourceClaim", decode_claim_spec)
    templates = snapshot.readable("ResourceClaimTemplate", decode_template)
    return ClaimSpecs(
        {(namespace, name): spec for namespace, name, spec in claims},
        {(namespace, name): spec for namespace, name, spec in templates},
    )
