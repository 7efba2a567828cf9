"""Pods that kubelet resizes in place count as kube-scheduler counts them, until it is done.

Source: ``PodRequests`` of k8s.io/component-helpers with ``UseStatusResources``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from gpucore.wire.constraints import decode_pod

Cpu = Mapping[str, str] | None
IN_PROGRESS = ({"type": "PodResizeInProgress", "status": "True"},)
DEFERRED = ({"type": "PodResizePending", "status": "True", "reason": "Deferred"},)
INFEASIBLE = ({"type": "PodResizePending", "status": "True", "reason": "Infeasible"},)
READY = ({"type": "Ready", "status": "True"},)


def cpu(amount: str) -> Mapping[str, str]:
    """An amount of CPU."""
    return {"cpu": amount}


def status(name: str, allocated: Cpu, actual: Cpu) -> dict[str, Any]:
    """What kubelet reports of a container."""
    found: dict[str, Any] = {"name": name}
    if allocated is not None:
        found["allocatedResources"] = allocated
    if actual is not None:
        found["resources"] = {"requests": actual}
    return found


def requested(
    spec: Mapping[str, Any],
    reported: Mapping[str, Any],
    conditions: Sequence[Mapping[str, str]] = IN_PROGRESS,
    *,
    generation: int = 2,
    observed: int = 2,
    deleted: bool = False,
) -> dict[str, int]:
    """What the pod requests."""
    item = {
        "metadata": {
            "generation": generation,
            "deletionTimestamp": "2026-01-01T00:00:00Z" if deleted else None,
        },
        "spec": {"nodeName": "n", **spec},
        "status": {"observedGeneration": observed, "conditions": conditions, **reported},
    }
    constraints = decode_pod(msgspec.json.encode(item)).constraints
    assert constraints is not None
    return dict(constraints.requests)


def container(name: str, amount: str, **more: str) -> dict[str, Any]:
    """A container of the specification."""
    return {"name": name, "resources": {"requests": cpu(amount)}, **more}


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "conditions", "milli"),
    [
        ("1", cpu("7"), cpu("7"), IN_PROGRESS, 7000),
        ("1", cpu("1"), cpu("7"), IN_PROGRESS, 7000),
        ("7", cpu("7"), cpu("1"), IN_PROGRESS, 7000),
        ("7", cpu("1"), cpu("1"), DEFERRED, 7000),
        ("7", cpu("1"), cpu("2"), INFEASIBLE, 2000),
        ("7", None, None, INFEASIBLE, None),
        ("7", cpu("1"), None, INFEASIBLE, 1000),
        ("7", None, cpu("1"), IN_PROGRESS, 7000),
        ("1", None, None, IN_PROGRESS, 1000),
    ],
)
def test_the_largest_amount_counts(
    spec: str, allocated: Cpu, actual: Cpu, conditions: Sequence[Mapping[str, str]], milli: int
) -> None:
    """The specification counts too, unless the node refused the new amount for good."""
    reported = {"containerStatuses": [status("c", allocated, actual)]}
    found = requested({"containers": [container("c", spec)]}, reported, conditions)
    assert found.get("cpu") == milli


def test_sums_are_compared_and_not_containers() -> None:
    """One container grows while another shrinks: the pod requests the larger sum."""
    spec = {"containers": [container("a", "5"), container("b", "1")]}
    reported = {"containerStatuses": [status("a", cpu("1"), None), status("b", cpu("4"), None)]}
    assert requested(spec, reported) == {"cpu": 6000}


def test_sidecars_and_overhead_count() -> None:
    """A sidecar is resized like a container; an init container is not, and overhead stays."""
    sidecar = container("s", "1", restartPolicy="Always")
    spec = {
        "containers": [container("c", "1")],
        "initContainers": [sidecar, container("i", "2")],
        "overhead": cpu("250m"),
    }
    reported = {
        "containerStatuses": [status("c", cpu("1"), cpu("1"))],
        "initContainerStatuses": [status("s", cpu("3"), cpu("4")), status("i", None, None)],
    }
    assert requested(spec, reported) == {"cpu": 6250}


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "conditions", "milli"),
    [
        ("1", cpu("7"), cpu("7"), IN_PROGRESS, 7000),
        ("1", cpu("1"), cpu("7"), IN_PROGRESS, 7000),
        ("7", cpu("1"), cpu("1"), DEFERRED, 7000),
        ("700", cpu("2"), cpu("2"), INFEASIBLE, 2000),
        ("700", cpu("2"), None, INFEASIBLE, 2000),
        ("1", {**cpu("7"), "aliyun.com/gpu-mem": "3"}, {}, IN_PROGRESS, 7000),
    ],
)
def test_requests_of_the_pod_as_a_whole_are_resized_too(
    spec: str, allocated: Cpu, actual: Cpu, conditions: Sequence[Mapping[str, str]], milli: int
) -> None:
    """From Kubernetes 1.36 on; what the node refused for good does not count."""
    whole = {"containers": [container("c", "500m")], "resources": {"requests": cpu(spec)}}
    reported = {
        "allocatedResources": allocated,
        "resources": {} if actual is None else {"requests": actual},
        "containerStatuses": [status("c", cpu("500m"), cpu("500m"))],
    }
    assert requested(whole, reported, conditions) == {"cpu": milli}


@pytest.mark.parametrize(
    ("conditions", "generation", "observed", "milli"),
    [
        (READY, 2, 1, 7000),
        (READY, 2, 2, 1000),
        (READY, 1, 0, 1000),
        (IN_PROGRESS, 1, 1, 1000),
    ],
)
def test_a_resize_counts_until_kubelet_has_done_it(
    conditions: Sequence[Mapping[str, str]], generation: int, observed: int, milli: int
) -> None:
    """Also before kubelet has seen it; the statuses of a pod that never changed are not read."""
    reported = {"containerStatuses": [status("c", cpu("7"), cpu("7"))]}
    spec = {"containers": [container("c", "1")]}
    found = requested(spec, reported, conditions, generation=generation, observed=observed)
    assert found == {"cpu": milli}


@pytest.mark.parametrize(("generation", "milli"), [(2, 1000), (3, 7000)])
def test_a_deletion_is_no_resize(generation: int, milli: int) -> None:
    """It counts as a generation, which kubelet has not seen yet either."""
    reported = {"containerStatuses": [status("c", cpu("7"), cpu("7"))]}
    spec = {"containers": [container("c", "1")]}
    found = requested(spec, reported, READY, generation=generation, observed=1, deleted=True)
    assert found == {"cpu": milli}
