"""Whose word decides the mode of a card, and when a card may change it."""

import pytest
from nodepods import card

from gpucore.model import Gpu, Inventory, Rung
from gpucore.node.modes import ignores_limits, incapable, published, settled, wish
from gpucore.units import NodeName
from gpucore.wire.nodes import Node, encode_inventory

NONE, MPS = Rung.NONE, Rung.MPS
CARDS = (card(0), card(1))


def wished(
    *, default: Rung = NONE, unable: dict[str, str] | None = None, cards: str = "", **labels: str
) -> tuple[list[Rung], tuple[str, ...]]:
    """Rungs of cards 0 and 1, and the faults."""
    names = {"isolation": "gpushare/isolation", "schedule": "ack.node.gpu.schedule"}
    found = wish(
        CARDS,
        default=default,
        labels={names[key]: text for key, text in labels.items()},
        annotations={"gpushare/card-isolation": cards} if cards else {},
        unable=unable or {},
    )
    return [found.rungs[gpu.uuid] for gpu in CARDS], found.faults


def test_the_label_is_stronger_than_the_setting_and_a_card_stronger_than_the_label() -> None:
    """Setting, then label, then the word for one card, by index or uuid."""
    assert wished(default=MPS) == ([MPS, MPS], ())
    assert wished(default=MPS, isolation="none") == ([NONE, NONE], ())
    assert wished(isolation="mps", cards="1=none") == ([MPS, NONE], ())
    assert wished(cards=f"{CARDS[0].uuid}=mps, 1=none") == ([MPS, NONE], ())


def test_the_vendors_label_is_read_where_ours_is_silent() -> None:
    """``ack.node.gpu.schedule=mps`` asks for MPS; other values of it say nothing."""
    assert wished(schedule="mps") == ([MPS, MPS], ())
    assert wished(schedule="share") == ([NONE, NONE], ())
    assert wished(schedule="mps", isolation="none") == ([NONE, NONE], ())


@pytest.mark.parametrize("cards", ["7=mps", "0=cgpu", "0", "=mps", "GPU-x=none"])
def test_a_word_that_says_nothing_sensible_changes_nothing_and_is_told(cards: str) -> None:
    """A typing error turns no daemon on or off."""
    rungs, faults = wished(isolation="mps", cards=cards)
    assert rungs == [MPS, MPS]
    assert len(faults) == 1
    assert "gpushare/card-isolation" in faults[0]


def test_a_label_that_says_nothing_sensible_leaves_the_setting() -> None:
    """The same for the label."""
    rungs, faults = wished(default=MPS, isolation="yes")
    assert rungs == [MPS, MPS]
    assert faults == ("the label gpushare/isolation=yes is neither none nor mps",)


def test_a_card_that_cannot_enforce_anything_never_says_that_it_does() -> None:
    """The rung stays none, and a sentence tells why."""
    rungs, faults = wished(default=MPS, unable={CARDS[1].uuid: "it is old"})
    assert rungs == [MPS, NONE]
    assert faults == ("card 1 has no isolation by MPS: it is old",)


@pytest.mark.parametrize(
    ("gpu", "capability", "able"),
    [
        (card(0), (7, 0), True),
        (card(0), (9, 0), True),
        (card(0), (0, 0), True),
        (card(0), (6, 1), False),
        (card(0, mig=True), (8, 0), False),
    ],
)
def test_mps_has_limits_from_volta_on_and_never_slices_an_instance(
    gpu: Gpu, capability: tuple[int, int], able: bool
) -> None:
    """Before Volta a client can be limited neither in threads nor in memory."""
    assert (incapable(gpu, capability) == "") is able


@pytest.mark.parametrize(
    ("driver", "old"), [("470.82.01", True), ("495.29.05", False), ("535.1", False), ("", False)]
)
def test_drivers_before_495_ignore_memory_limits(driver: str, old: bool) -> None:
    """CUDA 11.5 brought the limit; of an unknown driver nothing is claimed."""
    assert ignores_limits(driver) is old


def test_a_card_in_use_keeps_its_mode() -> None:
    """Busy cards keep what they have; empty and new ones take what is wanted."""
    current = {"a": NONE, "b": MPS, "c": MPS}
    wanted = {"a": MPS, "b": NONE, "d": MPS}
    assert settled(current, wanted, {"a"}) == {"a": NONE, "b": NONE, "d": MPS}
    assert settled(current, wanted, {"a", "b", "d"}) == {"a": NONE, "b": MPS, "d": MPS}


def test_a_restarted_plugin_reads_the_modes_it_had_published() -> None:
    """From the node's inventory; text that is none tells nothing."""
    text = encode_inventory(Inventory(gpus=(card(0, rung=MPS), card(1))))
    node = Node(name=NodeName("n"), annotations={"gpushare/inventory": text})
    assert published(node) == {CARDS[0].uuid: MPS, CARDS[1].uuid: NONE}
    assert published(Node(name=NodeName("n"), annotations={"gpushare/inventory": "{"})) == {}
    assert published(Node(name=NodeName("n"))) == {}
