"""The objects by which pods request GPUs as claims; those of this driver, in numbers of GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.claims.selectors import excludes_driver
from gpucore.wire.claim.claim_specs import ALL, ClaimSpec, DeviceChoice, DeviceClass, DeviceRequest
from gpucore.wire.claim.devices import GPU_UUID
from gpucore.wire.names import CLAIM_DRIVER

CLASS: Final = "DeviceClass"
CLAIM: Final = "ResourceClaim"
TEMPLATE: Final = "ResourceClaimTemplate"
_KNOWN: Final = frozenset({"gpushare", "gpushare-exclusive"})
"""Classes of the chart; taken to be ours where DeviceClasses cannot be read."""
Classes = Mapping[str, DeviceClass]


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


class ClaimedGpus(msgspec.Struct, frozen=True):
    """A number of equal GPUs, or of equal shares on GPUs of their own.

    Attributes:
        memory_mib: of each share in MiB; 0 for exclusive GPUs.
        core: percent of compute of each share.
    """

    gpus: int
    memory_mib: int = 0
    core: int = 0


def claimed_gpus(specs: Sequence[ClaimSpec], classes: Classes) -> ClaimedGpus | None:
    """The GPUs that these claims request; ``None`` for none, and where the node decides how many.

    Of the ways to satisfy a request the first of this driver counts. Shares that must have one UUID
    are one share; all others have GPUs of their own, with the largest on each. Where claims request
    exclusive GPUs as well, these count.
    """
    shares = [share for spec in specs for share in _shares(spec, classes)]
    if not shares or any(share.gpus == ALL for share in shares):
        return None
    exclusive = sum(share.gpus for share in shares if not share.memory_mib)
    if exclusive:
        return ClaimedGpus(exclusive)
    return ClaimedGpus(
        sum(share.gpus for share in shares),
        max(share.memory_mib for share in shares),
        max(share.core for share in shares),
    )


def _shares(spec: ClaimSpec, classes: Classes) -> Iterator[ClaimedGpus]:
    on_one: list[ClaimedGpus] = []
    for request in spec.requests:
        choice = _choice(request, classes)
        if choice is None or choice.admin:
            continue
        share = _share(choice)
        if share.gpus == 1 and _on_one_gpu(spec, request):
            on_one.append(share)
        else:
            yield share
    if on_one:
        yield _together(on_one)


def _choice(request: DeviceRequest, classes: Classes) -> DeviceChoice | None:
    mine = (each for each in request.choices if may_be_ours(each, classes.get(each.device_class)))
    return next(mine, None)


def _share(choice: DeviceChoice) -> ClaimedGpus:
    """A claim without an amount of memory takes all of it; one of 0 takes the smallest share."""
    if choice.memory_mib is None:
        return ClaimedGpus(choice.count)
    return ClaimedGpus(choice.count, max(choice.memory_mib, 1), choice.core)


def _on_one_gpu(spec: ClaimSpec, request: DeviceRequest) -> bool:
    return any(
        each.attribute == GPU_UUID
        and not each.distinct
        and (not each.requests or request.name in each.requests)
        for each in spec.constraints
    )


def _together(shares: Sequence[ClaimedGpus]) -> ClaimedGpus:
    if any(not share.memory_mib for share in shares):
        return ClaimedGpus(1)
    return ClaimedGpus(
        1, sum(share.memory_mib for share in shares), sum(share.core for share in shares)
    )
