"""Pod templates of any object, with their numbers of pods."""

from typing import Any

import pytest

from gpucore.simulate.manifests import wanted_pods
from gpucore.simulate.templates import MOST_TEMPLATES, pod_templates
from gpucore.wire.errors import WireError
from gpucore.wire.names import DEFAULT_NAMES


def template(units: int = 2) -> dict[str, Any]:
    """A pod template with a container that requests units."""
    limits = {"aliyun.com/gpu-mem": units} if units else {}
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


def found(kind: str, spec: dict[str, Any]) -> list[tuple[str, int]]:
    """Names and numbers of the pods of an object named ``x``."""
    document = {"kind": kind, "metadata": {"name": "x"}, "spec": spec}
    return [(each.pod.name, each.replicas) for each in wanted_pods([document], DEFAULT_NAMES)]


JOB = {"parallelism": 3, "completions": 9, "template": template()}
RAY = {
    "headGroupSpec": {"template": template(0)},
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 2, "template": template()},
        {"groupName": "large", "replicas": 1, "template": template(8)},
    ],
}


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("Deployment", {"replicas": 4, "template": template()}, [("x", 4)]),
        ("Deployment", {"template": template()}, [("x", 1)]),
        ("Deployment", {"replicas": 0, "template": template()}, [("x", 0)]),
        ("Job", JOB, [("x", 3)]),
        ("CronJob", {"schedule": "@daily", "jobTemplate": {"spec": JOB}}, [("x", 3)]),
        ("Job", JOB | {"completions": 1}, [("x", 1)]),
        ("Job", {"completions": 4, "template": template()}, [("x", 1)]),
        ("Job", JOB | {"completions": None}, [("x", 3)]),
        ("RayCluster", RAY, [("x-small", 2), ("x-large", 1)]),
        (
            "RayCluster",
            {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 9, "template": template()}]},
            [("x", 18)],
        ),
        ("RayCluster", {"w": [{"numOfHosts": 9, "template": template()}]}, [("x", 9)]),
        ("RayJob", {"rayClusterSpec": RAY}, [("x-small", 2), ("x-large", 1)]),
        (
            "MPIJob",
            {
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "template": template(0)},
                    "Worker": {"replicas": 5, "template": template()},
                }
            },
            [("x-worker", 5)],
        ),
        (
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template()}},
            [("x", 8)],
        ),
        (
            "LeaderWorkerSet",
            {
                "replicas": 2,
                "leaderWorkerTemplate": {
                    "size": 4,
                    "leaderTemplate": template(1),
                    "workerTemplate": template(),
                },
            },
            [("x-leader", 2), ("x-worker", 6)],
        ),
        (
            "JobSet",
            {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": JOB}}]},
            [("x", 6)],
        ),
        ("Rollout", {"replicas": 2, "template": template()}, [("x", 2)]),
        ("Anything", {"deep": {"er": {"template": template()}}}, [("x", 1)]),
        ("Service", {"ports": [{"port": 80}], "selector": {"app": "x"}}, []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_pods_of_an_object(
    kind: str, spec: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    """Numbers on the way to a template multiply; of several roles those with GPUs count.

    A Job runs no more pods than completions; a replica of a Ray worker group has numOfHosts pods.
    """
    assert found(kind, spec) == expected


def test_an_object_without_a_gpu_request_keeps_its_pods() -> None:
    """So that the reader learns that it requests none."""
    assert found("Deployment", {"template": template(0)}) == [("x", 1)]


def test_a_deep_object_ends_the_search() -> None:
    """A template below many levels is not found, and the search stays short."""
    spec: dict[str, Any] = {"template": template()}
    for _ in range(500):
        spec = {"a": spec}
    assert found("Anything", spec) == []


def test_too_many_templates_are_refused() -> None:
    """An object of a stranger cannot make the list long."""
    groups = [{"template": template()} for _ in range(MOST_TEMPLATES + 1)]
    with pytest.raises(ValueError, match="more than 200 pod templates"):
        pod_templates({"spec": {"groups": groups}})


@pytest.mark.parametrize("count", ["many", {}, []])
def test_a_number_that_is_none_is_an_error(count: object) -> None:
    """Of the object, not of the program."""
    with pytest.raises(WireError):
        found("Deployment", {"replicas": count, "template": template()})
