"""How long filter and prioritize take, one after the other, as kube-scheduler sends them."""

import json
from collections.abc import Sequence
from typing import Any

from bench.subject import ExtenderConnection, Subject
from environments import fakenodes

CALLS = 300
WARM_UP = 20


def measure(subject: Subject, names: int, nodes: int) -> dict[str, list[float]]:
    """Milliseconds of each call by verb, the first with ``names`` of ``nodes`` node names.

    Verbs take turns as they do for a scheduler. Filter answers with the best node only; prioritize
    is called with all of these names, as for a pod with preferences of its own. Every pod is
    another one and passes another stretch of the nodes, so that nothing is measured that an
    answer remembered from the pod before would give away.
    """
    connection = ExtenderConnection(subject.url)
    times: dict[str, list[float]] = {"filter": [], "prioritize": []}
    for number in range(WARM_UP + CALLS):
        pod, offered = _pod(number), _stretch(number, names, nodes)
        for verb, series in times.items():
            seconds, answer = connection.post(verb, _arguments(pod, offered))
            _check(verb, answer)
            series.append(seconds * 1000)
    return {verb: series[WARM_UP:] for verb, series in times.items()}


def _stretch(number: int, names: int, nodes: int) -> list[str]:
    first = number * 137 % nodes
    return [f"node-{(first + i) % nodes:05}" for i in range(names)]


def _pod(number: int) -> dict[str, Any]:
    pod = fakenodes.pod(f"probe-{number}", 1 + number % 60, scheduler="none")
    pod["metadata"]["uid"] = f"00000000-0000-4000-8000-{number:012}"
    return pod


def _arguments(pod: dict[str, Any], names: Sequence[str]) -> bytes:
    """Without a space, as Go writes JSON."""
    args = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(args, separators=(",", ":")).encode()


def _check(verb: str, answer: object) -> None:
    """An answer has names; one without content would be quick and worthless."""
    if verb == "filter":
        assert isinstance(answer, dict)
        assert not answer.get("Error")
        names = answer.get("NodeNames")
    else:
        assert isinstance(answer, list)
        names = [entry["Host"] for entry in answer]
    assert isinstance(names, list)
    assert names
