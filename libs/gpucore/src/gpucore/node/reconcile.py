"""Makes annotations tell the truth: kubelet's account of who holds what wins over every plan.

Two equal pods may have been swapped, a pod may have bypassed the extender, two schedulers may
have clashed. What kubelet handed out is a fact; the annotation is corrected to it, and the
correction says in one sentence what changed. A pod is left alone until kubelet has given all of
its containers all they ask.

kubelet lists devices of containers and sidecars, not of other init containers; for those the
caller adds what the plugin gave them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpucore.model import Ask, Cards, Claim, ClaimState, Demand, Inventory, Placement
from gpucore.node.denial import card_list
from gpucore.node.devices import DeviceTable, Resource, device_table
from gpucore.node.holdings import Held
from gpucore.units import GpuIndex, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pods import Pod, annotations_of, claim_of, demand_of

ADOPTED: Final = "GpuShareAdopted"
CORRECTED: Final = "GpuShareCorrected"
_V3_MAPS: Final = (wire_names.V3_MEMORY, wire_names.V3_CORE_PERCENTAGE)


class Correction(msgspec.Struct, frozen=True):
    """One patch of one pod's annotations.

    Attributes:
        annotations: new values; ``None`` removes.
        reason: of the event; empty where the plan was kept and only ASSIGNED becomes true.
        message: of the event.
    """

    uid: PodUid
    namespace: str
    name: str
    annotations: Mapping[str, str | None]
    reason: str = ""
    message: str = ""


class Truth(msgspec.Struct, frozen=True):
    """What the corrections are made from.

    Attributes:
        now_ns: Unix nanoseconds, for pods that nobody dated.
        inherited: pods of which kubelet's account does not tell the card, by namespace and name.
    """

    inventory: Inventory
    names: Names
    now_ns: int
    inherited: frozenset[tuple[str, str]] = frozenset()


def corrections(held: Iterable[Held], pods: Iterable[Pod], truth: Truth) -> list[Correction]:
    """The patches that make the annotations of ``pods`` agree with what they hold."""
    tables = {each: device_table(truth.inventory, each) for each in Resource}
    by_name = {(each.namespace, each.name): each for each in held}
    found = []
    for pod in pods:
        key = (pod.namespace, pod.name)
        holding = None if key in truth.inherited else by_name.get(key)
        correction = _correction(pod, holding, tables, truth) if holding is not None else None
        if correction is not None:
            found.append(correction)
    return found


def _correction(
    pod: Pod, holding: Held, tables: Mapping[Resource, DeviceTable], truth: Truth
) -> Correction | None:
    try:
        demand, claim = demand_of(pod, truth.names), claim_of(pod, truth.names)
    except WireError:
        return None
    if demand is None or claim is None:
        return None
    actual = actual_placement(pod, demand, holding, tables)
    if actual is None and _only_inits_ask(demand) and pod.phase == "Running":
        actual = _as_planned(claim)  # kubelet lists no init containers, but it admitted the pod
    if actual is None:
        return None
    actual = _in_planned_order(actual, claim.placement, demand)
    wanted = _wanted(pod, demand, claim, actual, truth)
    changed = {key: text for key, text in wanted.items() if pod.annotations.get(key) != text}
    if not changed:
        return None
    reason, message = _event(claim, actual)
    return Correction(pod.uid, pod.namespace, pod.name, changed, reason, message)


def _only_inits_ask(demand: Demand) -> bool:
    return not any(demand.containers)


def _as_planned(claim: Claim) -> Placement | None:
    """The plan of a pod, where it says where all of the pod is."""
    pending = claim.pending or claim.pending_core or claim.pending_gpus
    return None if pending else claim.placement


def _wanted(
    pod: Pod, demand: Demand, claim: Claim, actual: Placement, truth: Truth
) -> dict[str, str | None]:
    wanted: dict[str, str | None] = dict(
        annotations_of(
            actual,
            demand,
            truth.names,
            inventory=truth.inventory,
            assume_time=claim.assume_time or truth.now_ns,
            assigned=True,
            exclusive=claim.exclusive and _planned(claim.placement),
        )
    )
    if not _same_place(claim.placement, actual):  # an older map would be believed before ours
        stale = (key for key in _V3_MAPS if key in pod.annotations and key not in wanted)
        wanted |= dict.fromkeys(stale)
    return wanted


def actual_placement(
    pod: Pod, demand: Demand, holding: Held, tables: Mapping[Resource, DeviceTable]
) -> Placement | None:
    """Where the pod's containers really are; ``None`` until kubelet has given them all they ask."""
    rows = {resource: _row(pod, holding, table, resource) for resource, table in tables.items()}
    for resource, row in rows.items():
        given = [sum(row.get(place, {}).values()) for place in range(len(demand.containers))]
        if given != [resource.asked(ask) for ask in demand.containers]:
            return None
    held = {resource: _held_cards(holding, table) for resource, table in tables.items()}
    if any(_amount(demand, resource) and not held[resource] for resource in tables):
        return None
    return Placement(
        node=pod.node,
        mem=_with_surplus(held[Resource.MEM], demand.mem),
        core=_with_surplus(held[Resource.CORE], demand.core),
        containers=rows[Resource.MEM],
        group=_group(rows[Resource.GPU], held[Resource.GPU]),
    )


def _amount(demand: Demand, resource: Resource) -> int:
    """What the pod as a whole asks for of one resource."""
    return resource.asked(Ask(demand.mem, demand.core, demand.gpus))


def _held_cards(holding: Held, table: DeviceTable) -> dict[GpuIndex, int]:
    """What the pod holds on each card: containers may use devices of an init container again."""
    rows = holding.containers.values()
    ids = {one for row in rows for one in row.get(table.resource, ())}
    return dict(sorted(table.per_card(ids).items()))


def _row(
    pod: Pod, holding: Held, table: DeviceTable, resource: Resource
) -> dict[int, dict[GpuIndex, int]]:
    row = {}
    for place, container in enumerate((*pod.containers, *pod.sidecars)):
        ids = holding.containers.get(container.name, {}).get(resource, ())
        cards = dict(sorted(table.per_card(ids).items()))
        if cards:
            row[place] = cards
    return row


def _with_surplus(cards: dict[GpuIndex, int], effective: int) -> dict[GpuIndex, int]:
    """What only init containers needed stays with the pod until it ends, on the same cards."""
    surplus = effective - sum(cards.values())
    for place, card in enumerate(cards):
        cards[card] += surplus // len(cards) + (place < surplus % len(cards))
    return cards


def _group(row: Mapping[int, Cards], held: Cards) -> tuple[GpuIndex, ...]:
    """Cards of the containers in their order, then those that only init containers had."""
    return tuple(dict.fromkeys((*(card for place in sorted(row) for card in row[place]), *held)))


def _in_planned_order(actual: Placement, planned: Placement, demand: Demand) -> Placement:
    """Each container's whole cards in the order of its plan, in which it was given them."""
    order = {card: position for position, card in enumerate(planned.group)}
    group: list[GpuIndex] = []
    rest = demand.gpus - sum(ask.gpus for ask in demand.containers)
    for count in (*(ask.gpus for ask in demand.containers), rest):
        row = actual.group[len(group) : len(group) + count]
        group += sorted(row, key=lambda card: (order.get(card, len(order)), card))
    return msgspec.structs.replace(actual, group=tuple(group))


def _planned(placement: Placement) -> bool:
    """A scheduler chose the GPU; where none did, none can have kept it exclusive."""
    return bool(placement.mem or placement.core or placement.group)


def _same_place(planned: Placement, actual: Placement) -> bool:
    return (
        planned.mem == actual.mem
        and set(planned.core) == set(actual.core)
        and set(planned.group) == set(actual.group)
        and (not planned.containers or planned.containers == actual.containers)
    )


def _event(claim: Claim, actual: Placement) -> tuple[str, str]:
    planned = claim.placement
    if _same_place(planned, actual):
        return "", ""
    real = card_list(actual.mem or actual.core or actual.group)
    where = planned.mem or planned.core or planned.group
    if not where:
        return ADOPTED, f"no scheduler named a card; kubelet placed the pod on {real}"
    if claim.state is ClaimState.CONFIRMED:
        return CORRECTED, f"the annotations named {card_list(where)}, kubelet has it on {real}"
    return CORRECTED, f"planned for {card_list(where)}, kubelet placed the pod on {real}"
