"""Sentences for people, and the catalogue they come from."""

from pathlib import Path

import pytest

from gpucore.catalogue import CATALOGUE, catalogue_page
from gpucore.explain import headline, placement_sentence, sentence
from gpucore.model import CardRefusal, Code, Placement, Refusal
from gpucore.units import GIB, GpuIndex, MemoryUnit, NodeName

N = NodeName("n")
LEGACY = "Insufficient GPU Memory in one device"


def card(code: Code, free: int = 0, total: int = 0, asked: int = 0, index: int = 0) -> CardRefusal:
    """Why one card cannot."""
    return CardRefusal(GpuIndex(index), code, free, total, asked)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            Refusal(
                N,
                Code.INSUFFICIENT_MEMORY,
                (
                    card(Code.INSUFFICIENT_MEMORY, 6, 15, 8),
                    card(Code.INSUFFICIENT_MEMORY, 7, 15, 8, index=1),
                ),
                GIB,
                8,
                total=1,
            ),
            f"{LEGACY}: no card has 8 GiB free: card 0 has 6 of 15 free, card 1 has 7 of 15 free",
        ),
        (
            Refusal(
                N,
                Code.INSUFFICIENT_MEMORY,
                (card(Code.UNHEALTHY), card(Code.INSUFFICIENT_MEMORY, 1, 9, 5, index=2)),
                MemoryUnit(256),
                5,
                free=1,
                total=2,
            ),
            (f"{LEGACY}: 1 of 2 cards has 5 units of 256MiB free: card 0 is unhealthy, "
            "card 2 has 1 of 9 free"),
        ),
        (
            Refusal(
                N,
                Code.INSUFFICIENT_CORE,
                (card(Code.INSUFFICIENT_CORE, 30, 100, 40),),
                None,
                2,
                total=1,
            ),
            ("No card that has the memory has enough free compute: no card can take 2 units: "
            "card 0 has 30 of 100 percent of compute free, asked 40"),
        ),
        (
            Refusal(
                N, Code.TOO_LARGE, (card(Code.TOO_LARGE, 15, 15, 20_000),), GIB, 20_000, total=1
            ),
            f"{LEGACY}: no card can take 20000 GiB: card 0 has 15 in all",
        ),
        (
            Refusal(N, Code.TOO_LARGE, (card(Code.TOO_LARGE, 15, 15, 8_000),), GIB, 8_000, total=1),
            (f"{LEGACY}: no card can take 8000 GiB: card 0 has 15 in all; "
            "if MiB were meant, ask for 8"),
        ),
        (
            Refusal(N, Code.MAX_PODS, (card(Code.MAX_PODS, 0, 48, 1),), GIB, 1, total=1),
            ("The card holds as many pods as it may: no card can take 1 GiB: "
            "card 0 holds its 48 pods"),
        ),
        (
            Refusal(N, Code.RUNG_MISSING, (card(Code.RUNG_MISSING, 9, 9, 1),), GIB, 1, total=1),
            ("The card cannot enforce shares in the way that the pod demands: "
            "no card can take 1 GiB: card 0 cannot enforce the share"),
        ),
        (
            Refusal(N, Code.PENDING_UNITS, (), GIB, 8, free=7, total=6),
            f"{LEGACY}: asked 8 GiB, 7 free of the node once 6 are kept for pods on unknown cards",
        ),
        (
            Refusal(
                N,
                Code.INSUFFICIENT_GPUS,
                (card(Code.SHARED_CARD), card(Code.TAKEN_WHOLE, index=1)),
                GIB,
                2,
                total=2,
            ),
            ("The node has too few cards that are entirely free: asked 2, 0 of 2 cards are free: "
            "card 0 is shared, card 1 is taken whole"),
        ),
        (
            Refusal(N, Code.INSUFFICIENT_GPUS, (), GIB, 3, free=2, total=2),
            "The node has too few cards that are entirely free: asked 3, 2 of 2 cards are free",
        ),
        (
            Refusal(N, Code.UNEVEN_SPLIT, (), GIB, 7, total=2),
            ("The amount does not divide evenly over the number of cards that the pod asks for: "
            "7 GiB over 2 cards"),
        ),
        (
            Refusal(N, Code.INVALID_REQUEST, detail="its label is wrong"),
            "The pod cannot be placed anywhere: its label is wrong",
        ),
        (Refusal(N, Code.NOT_SHARED), "The node n is not for GPU share, need skip"),
        (Refusal(N, Code.NODE_UNKNOWN), "The extender does not know a node of this name"),
    ],
)  # fmt: skip
def test_a_refusal_is_a_sentence_with_figures(refusal: Refusal, words: str) -> None:
    """The original's text first where it had one, then what is missing on which card."""
    assert sentence(refusal) == words


@pytest.mark.parametrize("code", list(Code))
def test_headlines_can_be_counted(code: Code) -> None:
    """Two nodes with other figures have the same headline, unless the node is the reason."""
    one = Refusal(N, code, (card(Code.UNHEALTHY),), GIB, 1, 2, 3, detail="d")
    two = Refusal(N, code, (), None, 4, 5, 6, detail="d")
    assert headline(one) == headline(two)
    assert sentence(one).startswith(headline(one))


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (Placement(N, {GpuIndex(1): 8}), "8 GiB on card 1 of node n"),
        (
            Placement(N, {GpuIndex(2): 4, GpuIndex(0): 4}, {GpuIndex(0): 20, GpuIndex(2): 20}),
            (
                "4 GiB on card 0, 4 GiB on card 2 and 20 percent of compute on card 0, "
                "20 percent of compute on card 2 of node n"
            ),
        ),
        (Placement(N, group=(GpuIndex(3),)), "card 3 of node n, whole"),
        (Placement(N, group=(GpuIndex(3), GpuIndex(0))), "cards 3, 0 of node n, whole"),
        (Placement(N), "no known card of node n"),
    ],
)
def test_a_placement_is_a_sentence(placement: Placement, words: str) -> None:
    """Where a pod sits, in the unit of the node."""
    assert placement_sentence(placement, GIB) == words


def test_every_code_is_in_the_catalogue() -> None:
    """No reason without a sentence and something to do, each ending as a sentence does."""
    assert set(CATALOGUE) == set(Code)
    for code, entry in CATALOGUE.items():
        assert entry.code is code
        assert entry.sentence.endswith(".")
        assert entry.remedy.endswith(".")
        assert "|" not in entry.sentence + entry.remedy


def test_the_documentation_is_the_catalogue() -> None:
    """docs/reason-codes.md is what the code prints; print it again when this fails."""
    page = Path(__file__).parents[3] / "docs" / "reason-codes.md"
    assert page.read_text(encoding="utf-8") == catalogue_page()
