"""whatif: pods that might come, and what would become of them.

Deciding for thousands of nodes takes a moment and a scheduler may be waiting, so pods are tried one
at a time with room in between: the answer is true of a cluster that may have changed meanwhile.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import placement_sentence
from gpucore.grouping import Grouping
from gpucore.ledger import Ledger
from gpucore.model import Ask, Demand
from gpucore.units import NodeName
from gpucore.whatif import Outcome, Wish, what_if
from gpucore.wire.names import POLICY_NAMES
from gpuextender.messages import MessageError
from gpuextender.views import RefusalView, refusal_view

MOST_PODS: Final = 200
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
    ledger: Ledger, wishes: list[Wish], *, policy: str, grouping: Grouping
) -> AnswerView:
    """Place ``wishes`` one after the other on copies of the books."""
    books = {name: account for name, account in ledger.nodes().items() if account.cards}
    fates: list[FateView] = []
    for wish in wishes:
        result = what_if(books, [wish], policy, grouping=grouping)
        books = dict(result.accounts)
        fates.append(_fate(result.outcomes[0], books))
        await asyncio.sleep(0)
    return AnswerView(fates)


def _fate(outcome: Outcome, books: Mapping[NodeName, NodeAccount]) -> FateView:
    placement = outcome.placement
    if placement is None:
        refusals = [refusal_view(refusal) for refusal in outcome.refusals.values()]
        return FateView(outcome.name, fits=False, node="", text="fits nowhere", refusals=refusals)
    text = placement_sentence(placement, books[placement.node].unit)
    return FateView(outcome.name, fits=True, node=placement.node, text=text, refusals=[])
