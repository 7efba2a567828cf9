"""Scheduler, annotations and kubelet agree, however many pods come at once and whoever dies."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pytest

from environments import podresources
from environments.case import Case
from environments.environment import Environment
from environments.podresources import ContainerUnits
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.scheduling]

FIRST_WITH_POLICIES = (1, 30)

Grants = Mapping[str, Sequence[ContainerUnits]]
"""What kubelet has handed out, by node."""


def granted(environment: Environment) -> Grants:
    """All of it, now."""
    return {node: podresources.allocated(environment, node) for node in environment.nodes}


def disagreements(environment: Environment, case: Case, grants: Grants) -> list[str]:
    """Pods of the case whose annotation names another GPU than kubelet handed out."""
    wrong = []
    pods = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in case.pods()}
    for node, gpus in environment.nodes.items():
        uuid = {gpu.index: gpu.uuid for gpu in gpus}
        for held in grants[node]:
            if held.namespace != case.name or held.pod not in pods:
                continue
            annotations = pods[held.pod]
            gpu = int(annotations.get("ALIYUN_COM_GPU_MEM_IDX", "-1"))
            if set(held.gpus) != {uuid.get(gpu)}:
                wrong.append(f"{held.pod}: annotation {gpu}, kubelet {held.gpus}")
            elif annotations.get("ALIYUN_COM_GPU_MEM_ASSIGNED") != "true":
                wrong.append(f"{held.pod}: not marked as assigned")
    return wrong


def overfull(environment: Environment, grants: Grants) -> list[str]:
    """GPUs on which kubelet handed out more units than they have."""
    found = []
    for node, gpus in environment.nodes.items():
        sums: dict[str, int] = defaultdict(int)
        for held in grants[node]:
            for uuid, units in held.gpus.items():
                sums[uuid] += units
        size = {gpu.uuid: gpu.units for gpu in gpus}
        found += [f"{node} {uuid}: {n}" for uuid, n in sums.items() if n > size[uuid]]
    return found


def settle(environment: Environment, case: Case, pods: int) -> None:
    """Wait until all agree, then check that nothing was lost and no GPU is over its size."""

    def agreed() -> Grants | None:
        grants = granted(environment)
        return None if disagreements(environment, case, grants) else grants

    try:
        grants = until("annotations agree with kubelet", agreed)
    except AssertionError as late:
        raise AssertionError(disagreements(environment, case, granted(environment))) from late
    holders = {held.pod for each in grants.values() for held in each if held.namespace == case.name}
    assert len(holders) == pods
    assert overfull(environment, grants) == []


@pytest.mark.oldest
def test_ten_equal_pods_at_once_agree_with_kubelet(environment: Environment, case: Case) -> None:
    """Equal amounts may be swapped by kubelet; the annotations then follow kubelet."""
    case.create_running(*(case.pod(f"equal-{i}", 5) for i in range(10)))
    settle(environment, case, 10)


def test_ten_unequal_pods_at_once_agree_with_kubelet(environment: Environment, case: Case) -> None:
    """Different amounts are never confused."""
    case.create_running(*(case.pod(f"unequal-{i}", 1 + i) for i in range(10)))
    settle(environment, case, 10)
    for i in range(10):
        assert case.env(f"unequal-{i}")["ALIYUN_COM_GPU_MEM_CONTAINER"] == str(1 + i)


@pytest.mark.oldest
def test_pods_that_bypass_the_scheduler_are_counted_and_corrected(
    environment: Environment, case: Case, small: str
) -> None:
    """A pod bound by its author gets annotations from the plugin; a wrong one is put right.

    From 1.30 on the admission policy refuses the wrong one already (test_admission.py).
    """
    strays = [case.pod("unbound", 4), case.pod("mistaken", 4)]
    for stray in strays:
        stray["spec"]["nodeName"] = small
    if environment.version < FIRST_WITH_POLICIES:
        allocation = {"ALIYUN_COM_GPU_MEM_IDX": "7", "ALIYUN_COM_GPU_MEM_POD": "4"}
        strays[1]["metadata"]["annotations"] = allocation
    case.create_running(*strays)
    settle(environment, case, len(strays))
    taken = Counter({gpu: 4 * n for gpu, n in Counter(case.gpus().values()).items()})
    free = [gpu.units - taken[gpu.index] for gpu in environment.nodes[small]]
    case.create_running(*(case.pod(f"rest-{i}", units, node=small) for i, units in enumerate(free)))
    settle(environment, case, len(strays) + len(free))


def test_a_crowd_on_one_small_node_fills_it_exactly(
    environment: Environment, case: Case, small: str
) -> None:
    """Two full GPUs of mixed shares: what fits runs, nothing is squeezed in beside it."""
    size = environment.nodes[small][0].units
    shares = [size - 7, size - 7, 4, 4, 3, 3]
    case.create_running(*(case.pod(f"crowd-{i}", n, node=small) for i, n in enumerate(shares)))
    settle(environment, case, len(shares))
    case.kubectl.apply(case.pod("late", 1, node=small))
    until("the late pod is refused", lambda: case.events("FailedScheduling", "late"))
    assert case.get("late")["spec"].get("nodeName") is None


def test_a_killed_stack_loses_no_pod_and_counts_none_twice(
    environment: Environment, case: Case, small: str
) -> None:
    """Every pod of the stack dies while a Deployment's pods come in; all end up in agreement.

    A Deployment, because kubelet itself fails a pod that it admits in the moments when no plugin is
    registered; the controller then makes another.
    """
    case.create_running(case.pod("before", 6, node=small))
    held = case.gpu("before")
    case.kubectl.apply(case.deployment("during", 3, replicas=8))
    stack = ("-n", environment.namespace, "--grace-period=0", "--force")
    environment.kubectl("delete", "pods", "--all", *stack)
    case.kubectl.apply(case.deployment("after", 2, replicas=4))
    environment.wait_ready()
    for name in ("during", "after"):
        case.wait_available(name)
    settle(environment, case, 13)
    assert case.gpu("before") == held
    assert case.ready("before")
