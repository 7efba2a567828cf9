"""Messages about gangs: why one is pending, or where its pods would be placed."""

from collections.abc import Iterator
from typing import Final

from gpucore.accounting.ledger import Ledger
from gpucore.explain.sentences import gpus_named, request_words
from gpucore.gang.members import MOST_RESERVED, Postponed, PostponedCause
from gpucore.gang.values import (
    GangPlacement,
    GroupCause,
    GroupRefusal,
    GroupShortage,
    Refused,
    Shortage,
)
from gpucore.model import Allocation
from gpucore.scheduling.device_fit import exclusive_devices
from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName, counted

NAMED: Final = 5
"""Different requests of a PodGroup that a refusal names: every node has the sentence."""


def gang_sentence(answer: Shortage | Postponed) -> str:
    """Why a gang gets no placement, with the figures."""
    return _shortage(answer) if isinstance(answer, Shortage) else _postponed(answer)


def group_sentence(answer: Refused) -> str:
    """Why a pod of a PodGroup gets no place, with the figures."""
    if isinstance(answer, GroupShortage):
        return _group_shortage(answer)
    return _group_refusal(answer) if isinstance(answer, GroupRefusal) else _postponed(answer)


def _group_shortage(shortage: GroupShortage) -> str:
    requests = ", ".join(
        f"{count} x {request_words(one, shortage.unit)}" for one, count in shortage.requests[:NAMED]
    )
    others = len(shortage.requests) - NAMED
    more = f" and {counted(others, 'other request')}" if others > 0 else ""
    return (
        f"{shortage.gang.name} needs GPUs for {shortage.needed} of its pending pods at once"
        f" ({requests}{more}): capacity for {shortage.found}"
    )


def _group_refusal(refusal: GroupRefusal) -> str:
    name = refusal.gang.name
    if refusal.cause is GroupCause.OTHERS_ONLY:
        return f"{name} has GPUs for {refusal.placed} of its pending pods"
    if refusal.cause is GroupCause.LOST:
        return f"{name} has lost its GPUs to other pods since filter was called"
    return f"{name} has no place for the pod on {refusal.node}"


def _shortage(shortage: Shortage) -> str:
    gang, missing = shortage.gang, shortage.missing
    more = " more" if missing < gang.size else ""
    room = f"capacity for {counted(shortage.room, 'member')} on {counted(shortage.nodes, 'node')}"
    request = request_words(shortage.pod_request, shortage.unit)
    return f"gang {gang.name} needs {missing}{more} x {request}: {room}"


def _postponed(postponed: Postponed) -> str:
    gang = postponed.gang
    return f"gang {gang.name} {_cause(postponed)} namespace {gang.namespace}"


def _cause(postponed: Postponed) -> str:
    gang, exist = postponed.gang, postponed.exist
    if postponed.cause is PostponedCause.INCOMPLETE:
        verb = "exists" if exist == 1 else "exist"
        return f"waits for {gang.size - exist} of its {gang.size} pods: {exist} {verb} in"
    if postponed.cause is PostponedCause.TOO_MANY:
        return f"waits: {MOST_RESERVED} places are already reserved in"
    if postponed.cause is PostponedCause.PLANNED_LONG:
        return (
            f"gets no new plan for another {max(round(postponed.seconds), 1)} s: plans took too"
            " long for gangs of"
        )
    return (
        f"cannot reserve GPUs for another {max(round(postponed.seconds), 1)} s: earlier"
        " reservations expired unused, in"
    )


def gang_words(
    answer: GangPlacement | Shortage | Postponed, ledger: Ledger, rules: Rules
) -> Iterator[str]:
    """The result of :func:`gpucore.gang.placement.place_gang`: the gang, then its nodes.

    Args:
        answer: computed from ``ledger``, under ``rules``.
    """
    if isinstance(answer, GangPlacement):
        yield from _placed(answer, ledger)
        return
    yield gang_sentence(answer)
    if isinstance(answer, Shortage):
        yield from _short(answer, ledger, rules)


def _placed(answer: GangPlacement, ledger: Ledger) -> Iterator[str]:
    by_node: dict[NodeName, list[Allocation]] = {}
    for one in answer.reservations:
        by_node.setdefault(one.placement.node, []).append(one)
    for name, reservations in by_node.items():
        yield (
            f"{counted(len(reservations), 'member')} of the gang would be placed on {name}: "
            f"{_places(reservations, ledger)}"
        )


def _short(shortage: Shortage, ledger: Ledger, rules: Rules) -> Iterator[str]:
    gpus = shortage.pod_request.gpus
    for name, room in shortage.roomiest:
        node_info = ledger.nodes()[name]
        if not gpus:
            yield f"{name} has capacity for {counted(room, 'member')}"
            continue
        free = exclusive_devices(node_info.devices.values(), shortage.pod_request)
        best = rules.grouping.whole(node_info, free, gpus, shortage.pod_request)
        score = node_info.shape.matrix.sum_of(best)
        words = f", the best {gpus} of them {gpus_named(best)} (score {score})" if score else ""
        count = counted(len(free), "GPU")
        yield f"{name} has {count} free, for {counted(room, 'member')}{words}"


def _places(reservations: list[Allocation], ledger: Ledger) -> str:
    groups = [one.placement.group for one in reservations]
    if not all(groups):
        return "shares"
    matrix = ledger.nodes()[reservations[0].placement.node].shape.matrix
    return "; ".join(f"{gpus_named(group)} (score {matrix.sum_of(group)})" for group in groups)
