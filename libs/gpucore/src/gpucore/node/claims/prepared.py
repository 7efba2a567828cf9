"""A prepared ResourceClaim, and its checkpoint: one JSON document for each claim.

A document for each claim, and not one for all, means that an unreadable one concerns one claim
alone and that the cost of a claim does not grow with their number.
"""

from typing import Final

import msgspec

from gpucore.wire.claim.prepared import AllocatedClaim, valid_uid

VERSION: Final = 1


class CheckpointError(ValueError):
    """A checkpoint cannot be read."""


class PreparedDevice(msgspec.Struct, frozen=True):
    """One device of the answer to kubelet.

    Attributes:
        cdi_devices: qualified names; the first device of each request has those of the request.
    """

    request: str
    pool: str
    device: str
    share_id: str
    cdi_devices: tuple[str, ...]
    uuid: str


class PreparedClaim(msgspec.Struct, frozen=True):
    """Everything that answers kubelet again and writes the CDI file again.

    Attributes:
        allocated: what was prepared; a claim can be allocated anew under the same UID.
        spec: the CDI file, as text.
    """

    namespace: str
    name: str
    allocated: AllocatedClaim
    devices: tuple[PreparedDevice, ...]
    spec: str

    @property
    def uid(self) -> str:
        return self.allocated.uid


class _Version(msgspec.Struct):
    version: int


class _Document(_Version):
    claim: PreparedClaim


def encode_checkpoint(claim: PreparedClaim) -> bytes:
    """The checkpoint of one claim."""
    return msgspec.json.encode(_Document(VERSION, claim))


def decode_checkpoint(raw: bytes, uid: str) -> PreparedClaim:
    """The claim ``uid`` of a checkpoint.

    Raises:
        CheckpointError: it is damaged, of another version or of another claim.
    """
    try:
        version = msgspec.json.decode(raw, type=_Version).version
        if version != VERSION:
            raise CheckpointError(f"version {version} of the checkpoint is not supported")
        claim = msgspec.json.decode(raw, type=_Document).claim
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"the checkpoint cannot be decoded: {str(error)[:200]}") from error
    if claim.uid != uid or not valid_uid(uid):
        raise CheckpointError("the checkpoint is that of another claim")
    return claim
