"""What a case leaves behind for the next one."""

from types import SimpleNamespace
from typing import Any

import pytest

from environments.case import Case

FORCE = "--force"


class RecordingKubectl:
    """Remembers its calls; the cluster has no pods."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, *words: str) -> str:
        self.calls.append(words)
        return ""


def closed(version: tuple[int, int]) -> list[tuple[str, ...]]:
    """The kubectl calls that close a case on a cluster of that version."""
    kubectl = RecordingKubectl()
    objects = SimpleNamespace(pods=lambda namespace: [])
    environment: Any = SimpleNamespace(kubectl=kubectl, objects=objects, version=version)
    Case(environment, "case").close()
    return kubectl.calls


def test_a_case_waits_for_its_pods_where_kubelet_would_start_a_forced_one_again() -> None:
    """Kubelet of 1.20 allocated the units of a pod deleted by force to that pod once more."""
    pods, namespace = closed((1, 20))
    assert FORCE not in pods
    assert "pods" in pods[1].split(",")
    assert namespace[:3] == ("delete", "namespace", "case")


@pytest.mark.parametrize("version", [(1, 22), (1, 37)])
def test_a_case_deletes_its_pods_by_force_elsewhere(version: tuple[int, int]) -> None:
    """Nobody waits to see an end."""
    assert FORCE in closed(version)[0]
