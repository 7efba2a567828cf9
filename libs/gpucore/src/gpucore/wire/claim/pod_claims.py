"""The claims that a pod uses, as its specification and its status name them."""

from typing import Final

import msgspec

from gpucore.wire.errors import decoded

_MARKS: Final = (b'"resourceClaims"', b'"extendedResourceClaimStatus"')


class PodClaim(msgspec.Struct, frozen=True):
    """One claim of a pod.

    Attributes:
        name: in the pod.
        claim: name of the ResourceClaim; empty while it has not been made from the template.
        template: name of the ResourceClaimTemplate; empty without one.
    """

    name: str
    claim: str = ""
    template: str = ""


class _Named(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Extended(msgspec.Struct, rename="camel"):
    resource_claim_name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    resource_claims: list[_Named] | None = None


class _Status(msgspec.Struct, rename="camel"):
    resource_claim_statuses: list[_Named] | None = None
    extended_resource_claim_status: _Extended | None = None


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER: Final = msgspec.json.Decoder(_Pod)


def claims_of_pod(raw: bytes | msgspec.Raw) -> tuple[PodClaim, ...]:
    """The claims of a pod, in order; the claim of its extended resources last.

    Raises:
        WireError: the bytes are no pod.
    """
    text = bytes(raw)
    if not any(mark in text for mark in _MARKS):
        return ()
    found = decoded(_DECODER, text, "no pod")
    status = found.status
    made = {each.name: each.resource_claim_name for each in status.resource_claim_statuses or ()}
    claims = [_claim(each, made.get(each.name)) for each in found.spec.resource_claims or ()]
    extended = status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        claims.append(PodClaim("extended-resources", extended.resource_claim_name))
    return tuple(claims)


def _claim(named: _Named, made: str | None) -> PodClaim:
    claim = named.resource_claim_name or made or ""
    return PodClaim(named.name, claim, named.resource_claim_template_name or "")
