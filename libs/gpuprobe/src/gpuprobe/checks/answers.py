"""Reads the answers of a plan: one mapping a line, in the order of the steps."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from gpuprobe.checks.verdicts import Answer, Step
from gpuprobe.names import ENDED, EXPECT


class MissingAnswerError(Exception):
    """A container reported less than its plan has steps; the text is a sentence for a row."""


def parsed(log: str) -> list[dict[str, Any]]:
    """The answers in the log of a container; other lines and a torn last one are left out."""
    found = []
    for line in log.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and ("ok" in answer or "error" in answer):
            found.append(answer)
    return found


def first(answers: Iterable[Answer], do: str, *, name: str = "") -> Answer:
    """What a step returned.

    Args:
        answers: of the plan.
        name: of the child, where several steps are alike.

    Raises:
        MissingAnswerError: it did not run, or it was refused.
    """
    for answer in answers:
        if answer.get("do") == do and (not name or answer.get("name") == name):
            return value(answer)
    raise MissingAnswerError(f"the container ended before the step {name or do}")


def expecting(uuid: str) -> Step:
    """The first step of a plan that must disturb nobody on other GPUs."""
    return {"do": EXPECT, "uuid": uuid}


def check_gpu(answers: Iterable[Answer]) -> None:
    """Raise MissingAnswerError where a plan ended because its container has another GPU."""
    for answer in answers:
        if answer.get("do") == EXPECT:
            value(answer)


def value(answer: Answer) -> Answer:
    """What a command returned.

    Raises:
        MissingAnswerError: it was refused.
    """
    if "error" in answer:
        error = answer["error"]
        if error["name"] == ENDED:
            raise MissingAnswerError(
                "a process ended without an answer, as one does that is killed for want of memory"
            )
        call, name = error["call"] or answer.get("do", "a step"), str(error["name"])
        raise MissingAnswerError(name if name.startswith(f"{call}:") else f"{call}: {name}")
    found: Answer = answer["ok"]
    return found


def outcome(answer: Answer) -> str:
    """``fine``, or the name of the error of a command."""
    if "ended" in answer:
        return ENDED
    return str(answer["error"]["name"]) if "error" in answer else "fine"


def step(answers: Sequence[Answer], index: int) -> Answer:
    """What a step of a child returned.

    Raises:
        MissingAnswerError: it was refused, or the child ended before it.
    """
    if index < len(answers):
        return value(answers[index])
    for answer in answers[-1:]:
        value(answer)
    raise MissingAnswerError("a process ended before its last step")


def child(answers: Sequence[Answer], name: str) -> list[Answer]:
    """The answers of a child, its description first.

    Raises:
        MissingAnswerError: it did not run.
    """
    found: list[Answer] = list(first(answers, "child", name=name)["answers"])
    return found
