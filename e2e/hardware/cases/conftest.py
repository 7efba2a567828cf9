"""The card, the nodes without Kubernetes, and the reasons why there are none here."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardware import blast, presence
from hardware.barenode import BareNode
from hardware.clients import Client
from hardware.compute import Request, settle
from hardware.grants import Card
from hardware.nvidiasmi import SmiCard
from hardware.presence import UnavailableError


@pytest.fixture(scope="session")
def smi_card() -> SmiCard:
    """The card that the suite may use, as nvidia-smi lists it."""
    try:
        return presence.usable_card()
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def slicing(smi_card: SmiCard) -> Iterator[BareNode]:
    """A node whose cards slice time between processes, as without any MPS."""
    assert smi_card.compute_mode == "Default"
    with short_folder() as root, BareNode(root, mps=False) as node:
        yield node


@pytest.fixture(scope="session")
def mps(smi_card: SmiCard) -> Iterator[BareNode]:
    """A node whose plugin runs an MPS daemon for every card."""
    try:
        with Client.local({"CUDA_VISIBLE_DEVICES": smi_card.uuid}) as probe:
            presence.demand_mps(probe.card["capability"])
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with short_folder() as root, BareNode(root, mps=True) as node:
        node.wait_for_mps(smi_card.uuid)
        (card,) = [each for each in node.cards() if each.uuid == smi_card.uuid]
        blast.let_in(node, card)
        yield node


@contextmanager
def short_folder() -> Iterator[Path]:
    """Sockets of MPS lie four folders deeper, and a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="g-", dir="/tmp") as root:
        yield Path(root)


@pytest.fixture(scope="session")
def card(smi_card: SmiCard, slicing: BareNode) -> Card:
    """The same card as the plugin publishes it."""
    return next(each for each in slicing.cards() if each.uuid == smi_card.uuid)


@pytest.fixture(scope="session")
def size(slicing: BareNode, card: Card) -> Request:
    """A request that takes some two milliseconds of one client alone on this card."""
    return settle(slicing, card)
