"""By which API a node offers its GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.node.claims.offer import DISABLED, UNSUPPORTED, Offer, requested, settled
from gpucore.units import GpuIndex

DEVICES, CLAIMS, UNDECIDED = Offer("devices"), Offer("claims"), Offer("")
GPUS = [GpuIndex(0), GpuIndex(2)]


def offer_for(
    label: str | None,
    default: str = "devices",
    *,
    enabled: bool = True,
    supported: bool | None = True,
) -> Offer:
    """What a node with this label requests."""
    labels = {} if label is None else {"gpushare/api": label}
    return requested(labels, default, enabled=enabled, supported=supported)


@pytest.mark.parametrize(
    ("label", "default", "offer"),
    [
        (None, "devices", DEVICES),
        (None, "claims", CLAIMS),
        (None, "auto", CLAIMS),
        ("claims", "devices", CLAIMS),
        ("devices", "claims", DEVICES),
        ("devices", "auto", DEVICES),
        ("auto", "devices", CLAIMS),
    ],
)
def test_the_label_counts_and_the_setting_where_there_is_none(
    label: str | None, default: str, offer: Offer
) -> None:
    """Each node chooses for itself."""
    assert offer_for(label, default) == offer


def test_auto_takes_devices_where_the_cluster_has_no_consumable_capacity() -> None:
    """That is no fault; a node that requests claims by name gets the reason."""
    assert offer_for("auto", supported=False) == DEVICES
    assert offer_for("auto", enabled=False) == DEVICES
    assert offer_for("claims", supported=False) == Offer("devices", UNSUPPORTED)
    assert offer_for("claims", enabled=False) == Offer("devices", DISABLED)


@pytest.mark.parametrize("label", ["auto", "claims"])
def test_nothing_is_offered_before_it_is_known_what_the_cluster_can_do(label: str) -> None:
    """Otherwise pods would be placed on devices that disappear a moment later."""
    assert offer_for(label, supported=None) == UNDECIDED
    assert offer_for("devices", supported=None) == DEVICES


def test_another_word_in_the_label_changes_nothing() -> None:
    """The sentence names the words that there are."""
    offer = offer_for("Claims", "claims")
    assert offer.api == "devices"
    assert "devices, claims, auto" in offer.why


def test_devices_stay_while_pods_hold_them() -> None:
    """The sentence names the GPUs and what to do."""
    offer = settled(CLAIMS, GPUS, ())
    assert offer.api == "devices"
    assert offer.why == (
        "pods hold GPUs 0, 2 through the device plugin: drain the node to offer claims"
    )
    assert settled(CLAIMS, (), ()) == CLAIMS
    assert settled(DEVICES, GPUS, ()) == DEVICES


def test_claims_stay_while_any_is_prepared() -> None:
    """Also where the node requests devices by its label."""
    offer = settled(DEVICES, (), ["ns/a"])
    assert offer.api == "claims"
    assert offer.why == "pods use the claims ns/a: drain the node to offer devices"
    assert settled(DEVICES, None, ["ns/a"]).api == "claims"
    assert settled(CLAIMS, (), ["ns/a"]) == CLAIMS


def test_claims_wait_until_kubelet_has_reported_who_holds_devices() -> None:
    """After a restart of the agent or of kubelet; devices need no such knowledge."""
    assert settled(CLAIMS, None, ()) == UNDECIDED
    assert settled(DEVICES, None, ()) == DEVICES


def test_a_node_with_shares_of_both_kinds_offers_neither() -> None:
    """That cannot happen by this agent, but a ledger that is wrong must not grow."""
    offer = settled(CLAIMS, GPUS, ["ns/a"])
    assert offer.api == ""
    assert "delete one kind" in offer.why


NAMES = [f"ns/{number}" for number in range(6)]


def test_long_lists_are_cut() -> None:
    """An event has a limited length."""
    why = settled(DEVICES, (), [f"ns/{number}" for number in range(40)]).why
    assert "ns/0, ns/1, ns/10, ns/11, ns/12 and 35 more" in why
    assert "ns/0, ns/1, ns/2, ns/3, ns/4:" in settled(DEVICES, (), NAMES[:5]).why
    assert "ns/0, ns/1, ns/2, ns/3, ns/4 and 1 more" in settled(DEVICES, (), NAMES[:6]).why


@given(
    st.sampled_from([DEVICES, CLAIMS, UNDECIDED]),
    st.none() | st.lists(st.sampled_from(GPUS), max_size=2),
    st.lists(st.sampled_from(["ns/a", "ns/b"]), max_size=2),
)
def test_the_other_kind_is_never_offered_beside_shares_that_run(
    wanted: Offer, granted: list[GpuIndex] | None, claims: list[str]
) -> None:
    """Property: no GPU is ever offered twice."""
    api = settled(wanted, granted, claims).api
    assert not (api == "claims" and (granted or granted is None) and not claims)
    assert not (api == "devices" and claims)
