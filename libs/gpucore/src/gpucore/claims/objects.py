"""The objects by which pods request GPUs as claims, and which of them are of this driver."""

from typing import Final

import msgspec

from gpucore.claims.selectors import excludes_driver
from gpucore.wire.claim.claim_specs import DeviceChoice, DeviceClass
from gpucore.wire.names import CLAIM_DRIVER

CLASS: Final = "DeviceClass"
CLAIM: Final = "ResourceClaim"
TEMPLATE: Final = "ResourceClaimTemplate"
_KNOWN: Final = frozenset({"gpushare", "gpushare-exclusive"})
"""Classes of the chart; taken to be ours where DeviceClasses cannot be read."""


class MissingObject(msgspec.Struct, frozen=True):
    """An object that does not exist; a :data:`CLASS` has no namespace."""

    kind: str
    name: str
    namespace: str = ""


def may_be_ours(choice: DeviceChoice, known: DeviceClass | None) -> bool:
    """The choice can be satisfied by devices of this driver.

    Args:
        known: its class; of a class that is not known the name decides.
    """
    if known is None:
        return choice.device_class in _KNOWN
    mentions = any(CLAIM_DRIVER in each for each in (*known.selectors, *choice.selectors))
    return mentions and not excludes_driver(CLAIM_DRIVER, known.selectors)
