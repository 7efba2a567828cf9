"""Which claims are compared with every node, so that a node can be nominated for their pod."""

import pytest

from gpucore.claims.nomination import (
    MOST_CONSTRAINED,
    MOST_SELECTED,
    rated_quickly,
    requests_only_our_devices,
)
from gpucore.wire.claim.claim_specs import ALL, ClaimSpec, DeviceChoice, DeviceRequest


@pytest.mark.parametrize(("characters", "quickly"), [(MOST_SELECTED // 2, True), (3000, False)])
def test_selectors_of_all_claims_of_a_pod_count_together(characters: int, *, quickly: bool) -> None:
    """All of them are evaluated for each device of each node."""
    choice = DeviceChoice("gpushare", selectors=("x" * characters,))
    claim = ClaimSpec((DeviceRequest("gpu", (choice,)),))
    assert rated_quickly((claim,))
    assert rated_quickly((claim, claim)) is quickly


@pytest.mark.parametrize(("more", "quickly"), [(0, True), (1, False)])
def test_a_request_for_all_devices_counts_as_one(more: int, *, quickly: bool) -> None:
    """Its number is not known before a node is compared."""
    request = DeviceRequest("gpu", (DeviceChoice("gpushare", count=ALL),))
    assert rated_quickly((ClaimSpec((request,) * (MOST_CONSTRAINED + more)),)) is quickly


def test_claims_that_request_nothing_are_none_of_ours() -> None:
    """No node is better than another for them."""
    assert not requests_only_our_devices((ClaimSpec(),), {})
