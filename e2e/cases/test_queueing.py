"""A pod that the extender refused is tried again as soon as a GPU has room for it."""

import time

import pytest

from environments.case import Case
from environments.environment import Environment
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.scheduling, pytest.mark.since("1.34")]

DELAY_SECONDS = 60
"""Six times the maximum backoff of a pod. Without a hint it waits for the flush, five minutes."""


def test_a_refused_pod_is_tried_again_when_a_share_comes_back(
    environment: Environment,
    case: Case,
    small: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The deletion requeues the pod through a queueing hint; the test prints the delay."""
    gpus = environment.nodes[small]
    case.create_running(*(case.pod(f"full-{gpu.index}", gpu.units, node=small) for gpu in gpus))
    case.kubectl.apply(case.pod("waiting", 5, node=small))
    until("the pod is refused", lambda: case.events("FailedScheduling", "waiting"))
    begin = time.monotonic()
    delay = handed_over(case, "full-0", "waiting")
    whole = time.monotonic() - begin
    with capsys.disabled():
        delays = f"{delay:.2f} s after the share came back, {whole:.2f} s after its pod was deleted"
        print(f"\na pod that waited has a node {delays}", end=" ")
    assert delay < DELAY_SECONDS
    case.wait_running("waiting")


def handed_over(case: Case, ends: str, waits: str) -> float:
    """Delete one pod; the seconds from when it is gone until the other has a node."""
    gone: list[float] = []

    def placed() -> bool:
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in case.pods()}
        if ends not in nodes and not gone:
            gone.append(time.monotonic())
        return bool(nodes[waits])

    case.kubectl("delete", "pod", ends, "-n", case.name, "--wait=false")
    until("the pod has a node", placed)
    return time.monotonic() - gone[0] if gone else 0.0
