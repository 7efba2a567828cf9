"""How long filter and prioritize take, one call after another, as kube-scheduler sends them."""

import json

from bench.subject import Connection, Subject
from environments import fakenodes

CALLS = 300
WARM_UP = 20


def measure(subject: Subject, verb: str, names: int, nodes: int) -> list[float]:
    """Milliseconds of each call with ``names`` of ``nodes`` node names.

    Every call asks for another pod and another stretch of the nodes, so that nothing is measured
    that an answer remembered from the call before would give away.
    """
    connection = Connection(subject.url)
    times = []
    for number in range(WARM_UP + CALLS):
        seconds, answer = connection.post(verb, _arguments(number, names, nodes))
        _check(verb, answer)
        times.append(seconds * 1000)
    return times[WARM_UP:]


def _arguments(number: int, names: int, nodes: int) -> bytes:
    first = number * 137 % nodes
    chosen = [f"node-{(first + i) % nodes:05}" for i in range(names)]
    pod = fakenodes.pod(f"probe-{number}", 1 + number % 60, scheduler="none")
    pod["metadata"]["uid"] = f"00000000-0000-4000-8000-{number:012}"
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": chosen}).encode()


def _check(verb: str, answer: object) -> None:
    """An answer that says nothing would be quick and worthless."""
    if verb == "filter":
        assert isinstance(answer, dict)
        assert not answer.get("Error")
        assert answer.get("NodeNames")
    else:
        assert isinstance(answer, list)
        assert answer
