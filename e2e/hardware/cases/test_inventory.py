"""The cards as the plugin publishes them are those that the driver has."""

import pytest

from hardware import nvidiasmi
from hardware.barenode import BareNode
from hardware.compute import whole
from hardware.grants import MEM, Card

pytestmark = pytest.mark.gpu


def test_the_inventory_agrees_with_nvidia_smi(slicing: BareNode) -> None:
    """Every card of nvidia-smi is published with its index, uuid, model and memory, once."""
    listed = {
        (each.index, each.uuid, each.model, each.memory_mib)
        for each in nvidiasmi.listed()
        if not each.mig
    }
    published = [
        (each.index, each.uuid, each.model, each.memory_mib)
        for each in slicing.cards()
        if each.mode != "mig"
    ]
    assert set(published) == listed
    assert len(published) == len(listed)


def test_kubelet_is_offered_every_unit_of_a_card(slicing: BareNode, card: Card) -> None:
    """The devices of a card are its whole units of memory, and each id names the card."""
    ids = [one for one in slicing.kubelet.healthy(MEM) if one.startswith(card.uuid)]
    assert len(ids) == card.units == card.memory_mib // slicing.unit_mib


def test_a_process_gets_the_card_of_its_grant(slicing: BareNode, card: Card) -> None:
    """CUDA in a process with the granted environment sees one card: the one kubelet gave ids of."""
    with slicing.client(whole(slicing), card=card.index) as client:
        assert client.card["uuid"] == card.uuid
        assert client.card["cards_seen"] == 1
