"""Answers about nodes that need not be worked out again until the node's books change.

A scheduler asks the same question (the pods of one Deployment) about the same thousands of nodes
again and again, while each bind changes one of them. Answers are kept by question and node, and a
node that is touched loses all of its answers. Bounded by the number of questions kept.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from gpucore.units import NodeName

QUESTIONS: Final = 16

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Memo(Generic[Q, A]):
    """Answers by question, then by node; the question least recently asked goes first."""

    def __init__(self, limit: int = QUESTIONS) -> None:
        self._limit = limit
        self._answers: OrderedDict[Q, dict[NodeName, A]] = OrderedDict()

    def of(self, question: Q) -> dict[NodeName, A]:
        """The answers kept for ``question``, for the caller to read and add to."""
        answers = self._answers.get(question)
        if answers is None:
            answers = self._answers[question] = {}
            if len(self._answers) > self._limit:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(question)
        return answers

    def touch(self, node: NodeName) -> None:
        """Forget all answers about ``node``."""
        for answers in self._answers.values():
            answers.pop(node, None)
