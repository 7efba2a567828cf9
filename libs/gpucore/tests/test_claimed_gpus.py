"""What claims request of GPUs, as one kind of share."""

from typing import Any

import pytest

from gpucore.claims.objects import ClaimedGpus, claimed_gpus
from gpucore.wire.claim.claim_specs import (
    ALL,
    ClaimSpec,
    DeviceChoice,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
)
from gpucore.wire.names import CLAIM_DRIVER

OURS = DeviceClass("shares", (f"device.driver == '{CLAIM_DRIVER}'",))
OTHER = DeviceClass("nics", ("device.driver == 'nic.example.com'",))
CLASSES = {each.name: each for each in (OURS, OTHER)}
UUID = f"{CLAIM_DRIVER}/uuid"


def request(name: str = "gpu", mib: int | None = 4096, **more: Any) -> DeviceRequest:
    """A request with one choice."""
    choice = DeviceChoice(more.pop("device_class", "shares"), memory_mib=mib, **more)
    return DeviceRequest(name, (choice,))


def spec(*requests: DeviceRequest, constraint: DeviceConstraint | None = None) -> ClaimSpec:
    """A claim."""
    return ClaimSpec(requests, (constraint,) if constraint else ())


ON_ONE = DeviceConstraint(UUID)
APART = DeviceConstraint(UUID, distinct=True)
TWO = (request("a", 4096, core=10), request("b", 2048, core=20))


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([spec(request(core=30))], ClaimedGpus(1, 4096, 30)),
        ([spec(request(mib=None, core=30))], ClaimedGpus(1)),
        ([spec(request(mib=None, count=4))], ClaimedGpus(4)),
        ([spec(request(mib=0))], ClaimedGpus(1, 1)),
        ([spec(request(count=2), constraint=APART)], ClaimedGpus(2, 4096)),
        ([spec(*TWO, constraint=ON_ONE)], ClaimedGpus(1, 6144, 30)),
        ([spec(*TWO)], ClaimedGpus(2, 4096, 20)),
        ([spec(*TWO, constraint=APART)], ClaimedGpus(2, 4096, 20)),
        (
            [spec(*TWO, constraint=DeviceConstraint(UUID, requests=("a",)))],
            ClaimedGpus(2, 4096, 20),
        ),
        ([spec(request()), spec(request(mib=8192))], ClaimedGpus(2, 8192)),
        ([spec(request()), spec(request(mib=None))], ClaimedGpus(1)),
        ([spec(request("a", None), request("b"), constraint=ON_ONE)], ClaimedGpus(1)),
        ([spec(request(), request("n", device_class="nics"))], ClaimedGpus(1, 4096)),
        ([spec(request(), request("m", 1024, admin=True))], ClaimedGpus(1, 4096)),
        ([spec(request(device_class="nics"))], None),
        ([spec(request(count=ALL))], None),
        ([], None),
    ],
)
def test_the_share_of_a_pod_follows_from_its_claims(
    specs: list[ClaimSpec], expected: ClaimedGpus | None
) -> None:
    """Shares of one GPU add up, others have GPUs of their own, other drivers do not count."""
    assert claimed_gpus(specs, CLASSES) == expected


def test_the_first_choice_of_this_driver_counts() -> None:
    """As kube-scheduler tries the choices in their order."""
    choices = (
        DeviceChoice("nics"),
        DeviceChoice("shares", memory_mib=8192),
        DeviceChoice("shares", memory_mib=4096),
    )
    assert claimed_gpus([spec(DeviceRequest("gpu", choices))], CLASSES) == ClaimedGpus(1, 8192)
