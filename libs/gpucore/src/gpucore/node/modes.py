"""Which rung of isolation each card of a node has: whose word counts, and when it may change.

The node's setting is the weakest word, its label is stronger, the word for one card the strongest.
A card changes only while nobody holds anything of it: clients of a daemon that stops lose their
work, and programs that started without one go on without limits.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpucore.model import Gpu, Rung
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.nodes import Node, decode_inventory

VOLTA: Final = (7, 0)
"""Compute capability from which MPS limits a client's threads and memory (manual, "Volta MPS")."""

LIMITS_DRIVER: Final = 495
"""First driver branch (CUDA 11.5) that honours ``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``."""


class Wish(msgspec.Struct, frozen=True):
    """What is asked of the cards.

    Attributes:
        rungs: by uuid, every card named.
        faults: what could not be granted or understood, in sentences.
    """

    rungs: Mapping[str, Rung]
    faults: tuple[str, ...] = ()


def incapable(gpu: Gpu, capability: tuple[int, int]) -> str:
    """Why MPS cannot enforce shares on a card, in words; empty when it can.

    Args:
        gpu: the card.
        capability: its compute capability; ``(0, 0)`` unknown, which is no reason against it.
    """
    if gpu.mig:
        return "a MIG instance is never sliced again"
    if (0, 0) < capability < VOLTA:
        major, minor = capability
        return f"compute capability {major}.{minor} is older than 7.0: MPS has no limits there"
    return ""


def ignores_limits(driver: str) -> bool:
    """The driver is known to be too old to limit a client's memory (it limits threads)."""
    branch = driver.partition(".")[0]
    return branch.isdecimal() and int(branch) < LIMITS_DRIVER


def wish(
    gpus: Collection[Gpu],
    *,
    default: Rung,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    unable: Mapping[str, str],
) -> Wish:
    """What setting, label and annotation ask of the cards.

    Args:
        gpus: the node's cards.
        default: the node's setting.
        labels: of the Node.
        annotations: of the Node.
        unable: cards that cannot enforce anything, by uuid, with the reason.
    """
    node, faults = _of_node(labels, default)
    own, more = _of_cards(annotations.get(wire_names.CARD_ISOLATION, ""), gpus)
    faults += more
    rungs: dict[str, Rung] = {}
    for gpu in gpus:
        rungs[gpu.uuid] = own.get(gpu.uuid, node)
        if rungs[gpu.uuid] is not Rung.NONE and gpu.uuid in unable:
            rungs[gpu.uuid] = Rung.NONE
            faults.append(f"card {gpu.index} has no isolation by MPS: {unable[gpu.uuid]}")
    return Wish(rungs, tuple(faults))


def settled(
    current: Mapping[str, Rung], wanted: Mapping[str, Rung], busy: Collection[str]
) -> dict[str, Rung]:
    """The rung of every wanted card now: one that is in use keeps what it has."""
    return {
        uuid: current.get(uuid, rung) if uuid in busy else rung for uuid, rung in wanted.items()
    }


def published(node: Node) -> dict[str, Rung]:
    """The rungs that the node's inventory tells, by uuid; what a restarted plugin goes on with."""
    try:
        inventory = decode_inventory(node.annotations.get(wire_names.INVENTORY, ""))
    except WireError:
        return {}
    return {gpu.uuid: gpu.rung for gpu in inventory.gpus}


def _of_node(labels: Mapping[str, str], default: Rung) -> tuple[Rung, list[str]]:
    text = labels.get(wire_names.ISOLATION)
    if text is None:
        legacy = labels.get(wire_names.LABEL_SCHEDULE) == wire_names.SCHEDULE_MPS
        return (Rung.MPS if legacy else default), []
    rung = _rung(text)
    if rung is None:
        return default, [f"the label {wire_names.ISOLATION}={text[:40]} is neither none nor mps"]
    return rung, []


def _of_cards(text: str, gpus: Iterable[Gpu]) -> tuple[dict[str, Rung], list[str]]:
    """``0=mps,GPU-...=none``; a part that says nothing sensible is a fault and changes nothing."""
    known = {name: gpu.uuid for gpu in gpus for name in (gpu.uuid, str(gpu.index))}
    own: dict[str, Rung] = {}
    faults = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        card, _, word = part.partition("=")
        rung, uuid = _rung(word.strip()), known.get(card.strip())
        if rung is None or uuid is None:
            faults.append(f"{part[:60]!r} in {wire_names.CARD_ISOLATION} names no card or no mode")
        else:
            own[uuid] = rung
    return own, faults


def _rung(text: str) -> Rung | None:
    return next((rung for rung in Rung if rung.value == text), None)
