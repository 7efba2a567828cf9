"""ResourceClaims as kubelet's request to prepare them needs them: what one driver has to provide.

The scheduler wrote the allocation and the API server validated it; names are still checked here,
because they become part of file contents and of CDI device names.
"""

import re
from typing import Final

import msgspec

from gpucore.wire.claim.resource_claims import DeviceShare, decode_claim
from gpucore.wire.errors import WireError

RESULTS_LIMIT: Final = 32
"""The API's maximum number of allocated devices of a claim."""
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?")


class AllocatedClaim(msgspec.Struct, frozen=True):
    """What a claim has of one driver.

    Attributes:
        devices: those of the driver, in the order of the allocation; a request is named without
            its subrequest.
        configured: the claim or its class passes opaque parameters to the driver.
    """

    uid: str
    devices: tuple[DeviceShare, ...]
    configured: bool = False


def valid_uid(text: str) -> bool:
    """The text can be a UID, and so a part of a file name."""
    return _UID.fullmatch(text) is not None


def decode_allocation(raw: bytes, driver: str) -> AllocatedClaim:
    """What a ResourceClaim has of ``driver``.

    Raises:
        WireError: the claim is not allocated, or not as the API promises.
    """
    claim = decode_claim(raw)
    if not claim.allocated:
        raise WireError("the ResourceClaim is not allocated")
    ours = [each for each in claim.shares if each.driver == driver]
    if len(ours) > RESULTS_LIMIT:
        raise WireError(f"the ResourceClaim has more than {RESULTS_LIMIT} devices of {driver}")
    return AllocatedClaim(claim.uid, tuple(map(_checked, ours)), driver in claim.configured)


def _checked(share: DeviceShare) -> DeviceShare:
    request = share.request.partition("/")[0]  # subrequests are "<request>/<subrequest>"
    for name in (request, share.device):
        if _LABEL.fullmatch(name) is None:
            raise WireError(f"{name[:40]!r} is no name of a request or of a device")
    if share.share_id and not valid_uid(share.share_id):
        raise WireError(f"{share.share_id[:40]!r} is no share ID")
    return msgspec.structs.replace(share, request=request)
