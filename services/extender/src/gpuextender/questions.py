"""whatif: pods that might come, and what would become of them.

Deciding for thousands of nodes takes a moment and a scheduler may be waiting, so nodes are asked a
few at a time with room in between: the answer is true of a cluster that may have changed meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import placement_sentence
from gpucore.grouping import Grouping
from gpucore.ledger import Ledger
from gpucore.model import Ask, Demand, Refusal
from gpucore.units import NodeName
from gpucore.whatif import Rated, Trial, Wish, claim_for
from gpucore.wire.names import POLICY_NAMES
from gpuextender.messages import MessageError
from gpuextender.slices import Slices
from gpuextender.views import RefusalView, refusal_view

MOST_PODS: Final = 200
MOST_REFUSALS: Final = 100
"""Nodes whose words are given for one pod: explain has them all."""
FEW: Final = 16
"""Nodes asked at once."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class WishBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pod that might come; ``replicas`` of them.

    Attributes:
        mem: units of GPU memory.
        core: percent of compute.
        gpus: whole cards.
        cards: cards to spread ``mem`` and ``core`` over evenly.
    """

    name: str
    mem: Amount = 0
    core: Amount = 0
    gpus: Amount = 0
    cards: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    policy: str = ""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MOST_PODS)] = 1


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Pods in the order they would come."""

    pods: Annotated[list[WishBody], msgspec.Meta(min_length=1, max_length=MOST_PODS)]


class FateView(msgspec.Struct, rename="camel"):
    """What would become of one pod: a place, or what each node says."""

    name: str
    fits: bool
    node: str
    text: str
    refusals: list[RefusalView]


class AnswerView(msgspec.Struct):
    """One for each pod, replicas numbered from 0."""

    pods: list[FateView]


_QUESTION: Final = msgspec.json.Decoder(QuestionBody)


def read_question(body: bytes) -> list[Wish]:
    """The pods that are asked about.

    Raises:
        MessageError: the body is no such question.
    """
    try:
        question = _QUESTION.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MessageError(str(error)) from error
    wishes = [wish for pod in question.pods for wish in _wishes(pod)]
    if len(wishes) > MOST_PODS:
        raise MessageError(f"{len(wishes)} pods are too many, the most is {MOST_PODS}")
    if len({wish.name for wish in wishes}) < len(wishes):
        raise MessageError("names of pods must differ")
    return wishes


def _wishes(pod: WishBody) -> list[Wish]:
    if pod.policy and pod.policy not in POLICY_NAMES:
        raise MessageError(f"policy must be one of {', '.join(POLICY_NAMES)}")
    if not (pod.mem or pod.core or pod.gpus):
        raise MessageError(f"pod {pod.name!r} asks for nothing: give mem, core or gpus")
    if pod.gpus and (pod.mem or pod.core):
        raise MessageError(f"pod {pod.name!r} asks for whole cards and for shares")
    demand = Demand(
        containers=(Ask(pod.mem, pod.core, pod.gpus),),
        mem=pod.mem,
        core=pod.core,
        gpus=pod.gpus,
        cards=pod.cards,
        policy=pod.policy,
    )
    names = [pod.name] if pod.replicas == 1 else [f"{pod.name}-{i}" for i in range(pod.replicas)]
    return [Wish(name, demand) for name in names]


async def answer(
    ledger: Ledger, wishes: list[Wish], slices: Slices, *, policy: str, grouping: Grouping
) -> AnswerView:
    """Place ``wishes`` one after the other on copies of the books."""
    books = {name: account for name, account in ledger.nodes().items() if account.cards}
    trials = [Trial(few, policy, grouping=grouping) for few in _few_by_few(books)]
    return AnswerView([await _fate(wish, trials, slices) for wish in wishes])


def _few_by_few(
    books: Mapping[NodeName, NodeAccount],
) -> Iterator[dict[NodeName, NodeAccount]]:
    items = iter(books.items())
    while few := dict(islice(items, FEW)):
        yield few


async def _fate(wish: Wish, trials: Iterable[Trial], slices: Slices) -> FateView:
    """Place one pod on the best node, the first of equals, for those that come after it."""
    best: tuple[Rated, Trial] | None = None
    refusals: list[Refusal] = []
    for trial in trials:
        for verdict in trial.verdicts(wish.demand).values():
            if isinstance(verdict, Refusal):
                refusals.append(verdict)
            elif best is None or verdict.rating > best[0].rating:
                best = verdict, trial
        await slices.breathe()
    if best is None:
        return _nowhere(wish, refusals)
    (rated, trial), node = best, best[0].placement.node
    account = trial.accounts[node].copy()
    account.put(claim_for(wish, rated.placement))
    trial.change(account)
    text = placement_sentence(rated.placement, account.unit)
    return FateView(wish.name, fits=True, node=node, text=text, refusals=[])


def _nowhere(wish: Wish, refusals: list[Refusal]) -> FateView:
    text = "fits nowhere"
    if len(refusals) > MOST_REFUSALS:
        text += f"; what {MOST_REFUSALS} of {len(refusals)} nodes say:"
    shown = [refusal_view(refusal) for refusal in refusals[:MOST_REFUSALS]]
    return FateView(wish.name, fits=False, node="", text=text, refusals=shown)
