"""Checks of what pods hold: every unit on a card that exists, none twice, none unexplained."""

from collections.abc import Iterator

from gpucore.explain import unit_of
from gpucore.model import Claim, ClaimState
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence

check = Checklist()


def _called(claim: Claim) -> str:
    return f"{claim.namespace}/{claim.name}"


@check(
    "no-pending",
    Level.FAIL,
    "every bound pod is on a known card",
    do="its scheduler did not call the extender: check schedulerName, then create it again",
)
def _pending(evidence: Evidence) -> Iterator[str]:
    for name, account in evidence.accounts.items():
        for claim in account.claims.values():
            if claim.pending or claim.pending_gpus or claim.pending_core:
                yield f"{_called(claim)} is on {name}, but on no known card"


@check(
    "annotations-true",
    Level.FAIL,
    "pods' annotations agree with what they ask",
    do="somebody edited them: create the pod again, and restrict who may write annotations",
)
def _faults(evidence: Evidence) -> Iterator[str]:
    for claim in evidence.ledger.claims().values():
        yield from (f"{_called(claim)}: {fault}" for fault in claim.faults)


@check(
    "cards-exist",
    Level.FAIL,
    "nobody holds a card that its node has not",
    do="the card was lost or exchanged: create the pods that are named again",
)
def _lost(evidence: Evidence) -> Iterator[str]:
    for name, account in evidence.accounts.items():
        for index, card in account.cards.items():
            if account.inventory is not None and card.gpu is None:
                holders = ", ".join(sorted(_called(account.claims[uid]) for uid in card.holders))
                yield f"{name} has no card {index}, but {holders} on it"


@check(
    "no-card-overfull",
    Level.FAIL,
    "no card holds more than it has",
    do="end one of the pods; if the device plugin is ours, report it, for this cannot be",
)
def _overfull(evidence: Evidence) -> Iterator[str]:
    for name, account in evidence.accounts.items():
        for index in account.overfull:
            card = account.cards[index]
            if card.gpu is not None:
                yield f"{name} card {index}: {card.used} of {card.total} {unit_of(account)}"


@check(
    "claims-confirmed",
    Level.WARN,
    "the node has confirmed the card of every running pod",
    do="see that the device plugin there runs and may patch pods",
)
def _confirmed(evidence: Evidence) -> Iterator[str]:
    # Kubelet lists no devices of init containers, and before 1.29 none of sidecars.
    running = {
        pod.uid
        for pod, demand in evidence.demands
        if pod.phase == "Running" and any(demand.containers)
    }
    for uid, claim in evidence.ledger.claims().items():
        if uid in running and claim.state is not ClaimState.CONFIRMED:
            yield f"{_called(claim)} runs on {claim.placement.node} unconfirmed"


@check(
    "nodes-exist",
    Level.WARN,
    "nobody holds cards of a vanished node",
    do="delete the pods that are named, with --force if the node never comes back",
)
def _vanished(evidence: Evidence) -> Iterator[str]:
    for name, account in evidence.accounts.items():
        if not account.present:
            pods = ", ".join(sorted(map(_called, account.claims.values())))
            yield f"{name} does not exist, but {pods} on it"
