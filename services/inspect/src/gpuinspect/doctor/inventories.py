"""Checks of what nodes say about their cards."""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import GIB_CARDS_END, unit_of
from gpucore.units import MIB
from gpucore.wire.errors import WireError
from gpucore.wire.names import INVENTORY, UNHEALTHY_KEY
from gpucore.wire.nodes import Node, decode_inventory, unhealthy_indexes, unhealthy_node
from gpucore.wire.quantity import amount
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence
from gpuinspect.doctor.rawobjects import ConfigMap

MESSAGE: Final = 4 << 20  # kubelet takes no larger message of gRPC
DEVICE: Final = 60  # bytes that one unit takes in it

check = Checklist()


def _explicit(evidence: Evidence) -> Iterator[tuple[Node, NodeAccount]]:
    return ((n, account) for n, account in evidence.sharing if account.unit is not None)


@check(
    "inventory-published",
    Level.WARN,
    "nodes say what their cards are",
    do="replace the original device plugin there by ours; until then sizes are guessed",
)
def _published(evidence: Evidence) -> Iterator[str]:
    for node, _ in evidence.sharing:
        if INVENTORY not in node.annotations:
            yield f"{node.name} does not say what its cards are"


@check(
    "inventory-readable",
    Level.FAIL,
    "what nodes say about their cards can be read",
    do="restart the device plugin there; it writes the annotation anew",
)
def _readable(evidence: Evidence) -> Iterator[str]:
    for node in evidence.snapshot.nodes:
        text = node.annotations.get(INVENTORY)
        try:
            _ = None if text is None else decode_inventory(text)
        except WireError as error:
            yield f"{node.name}: {error}"


@check(
    "inventory-agrees",
    Level.FAIL,
    "cards and kubelet agree on the units",
    do="restart the device plugin there, so that it registers anew",
)
def _total_agrees(evidence: Evidence) -> Iterator[str]:
    for node, account in _explicit(evidence):
        said = sum(gpu.units for gpu in account.inventory.gpus) if account.inventory else 0
        offered = amount(node.capacity.get(evidence.names.gpu_mem, "0"))
        if account.shape.offers_shares and said != offered:
            yield f"{node.name}: cards of {said} units in all, kubelet knows {offered}"


@check(
    "gpu-count-agrees",
    Level.FAIL,
    "cards and node status agree on the number of cards",
    do="see that the plugin may patch nodes/status",
)
def _count_agrees(evidence: Evidence) -> Iterator[str]:
    for node, account in _explicit(evidence):
        text = node.capacity.get(evidence.names.gpu_count)
        cards = len(account.inventory.gpus) if account.inventory else 0
        if text is not None and amount(text) != cards:
            yield f"{node.name}: {cards} cards, but its {evidence.names.gpu_count} is {text}"


@check(
    "unit-said",
    Level.WARN,
    "no unit is guessed where the guess may be wrong",
    do="run our device plugin there, which says its unit",
)
def _unit_said(evidence: Evidence) -> Iterator[str]:
    for node, account in evidence.sharing:
        largest = account.shape.largest_card
        if account.unit is None and largest > GIB_CARDS_END:
            yield f"{node.name}: cards of {largest} units, taken for MiB"


@check(
    "one-unit",
    Level.WARN,
    "all nodes count in one unit",
    do="set one memoryUnit for all; a pod's amount means another size on each",
)
def _one_unit(evidence: Evidence) -> Iterator[str]:
    units = {unit_of(account) for _, account in evidence.sharing}
    if len(units) > 1:
        yield "nodes count in " + ", ".join(str(unit) for unit in sorted(units))


@check(
    "message-size", Level.FAIL, "kubelet can take the list of units", do="set a coarser memoryUnit"
)
def _message_size(evidence: Evidence) -> Iterator[str]:
    for node, account in _explicit(evidence):
        units = sum(gpu.units for gpu in account.inventory.gpus) if account.inventory else 0
        if units * DEVICE > MESSAGE:
            coarser = "256MiB" if account.unit == MIB else "GiB"
            yield f"{node.name}: {units} units are too many for kubelet; use {coarser}"


@check(
    "cards-healthy",
    Level.WARN,
    "all cards are healthy",
    do="read the node's events for the XID; the card returns after clean probes",
)
def _healthy(evidence: Evidence) -> Iterator[str]:
    for node, account in evidence.sharing:
        sick = [str(card.index) for card in account.cards.values() if card.gpu and not card.healthy]
        if sick:
            yield f"{node.name}: card {', '.join(sick)}"


@check(
    "no-promise-beyond-memory",
    Level.FAIL,
    "no card offers more than its memory",
    do="restart the device plugin there; report it if it stays",
)
def _promises(evidence: Evidence) -> Iterator[str]:
    for node, account in _explicit(evidence):
        for gpu in account.inventory.gpus if account.inventory else ():
            promised = gpu.units * unit_of(account).mib
            if gpu.memory_mib and promised > gpu.allocatable_mib:
                yield f"{node.name} card {gpu.index}: {promised} MiB of {gpu.allocatable_mib}"


@check("driver-known", Level.WARN, "nodes say their driver", do="look at nvidia-smi on the node")
def _driver_known(evidence: Evidence) -> Iterator[str]:
    for node, account in _explicit(evidence):
        if account.inventory and not account.inventory.driver:
            yield f"{node.name} says no driver version"


@check(
    "one-driver",
    Level.WARN,
    "all nodes have one driver version",
    do="finish the upgrade of the driver",
)
def _one_driver(evidence: Evidence) -> Iterator[str]:
    texts = {account.inventory.driver for _, account in _explicit(evidence) if account.inventory}
    if len(texts - {""}) > 1:
        yield "nodes have drivers " + ", ".join(sorted(texts - {""}))


@check(
    "node-labels",
    Level.WARN,
    "labels that tune a node can be read",
    do="correct the label that is named",
)
def _labels_sane(evidence: Evidence) -> Iterator[str]:
    for node, account in evidence.sharing:
        yield from (f"{node.name}: {fault}" for fault in account.shape.faults)


@check(
    "unhealthy-config-maps",
    Level.WARN,
    "config maps of unhealthy cards speak of cards there are",
    do="correct or delete the config map",
    needs=("ConfigMap",),
)
def _unhealthy_maps(evidence: Evidence) -> Iterator[str]:
    for raw in evidence.snapshot.all("ConfigMap"):
        config_map = msgspec.json.decode(raw, type=ConfigMap)
        name = unhealthy_node(config_map.metadata.name)
        if name is None:
            continue
        account = evidence.ledger.node(name)
        if account is None or not account.present:
            yield f"{config_map.metadata.name} speaks of a node that does not exist"
            continue
        said = unhealthy_indexes((config_map.data or {}).get(UNHEALTHY_KEY, ""))
        for index in sorted(said - account.cards.keys()):
            yield f"{config_map.metadata.name} names card {index}, which the node has not"
