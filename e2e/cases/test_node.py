"""What happens on a node: bursts, a GPU that fails, a kubelet and a plugin that come back."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from environments import podresources
from environments.case import Case
from environments.kind import KindEnvironment
from environments.podprocesses import first_pid
from environments.waiting import until

pytestmark = pytest.mark.e2e

GPU_MEM = "aliyun.com/gpu-mem"


def offered(environment: KindEnvironment, node: str) -> int:
    """Units the node offers to schedulers."""
    status = environment.objects.node(node)["status"]
    return int(status["allocatable"].get(GPU_MEM, "0"))


def unhealthy(environment: KindEnvironment, node: str) -> set[int]:
    """GPUs of the inventory, by which the extender places pods, that it may not place pods on."""
    annotations = environment.objects.node(node)["metadata"]["annotations"]
    found = json.loads(annotations["gpushare/inventory"])["gpus"]
    return {gpu["index"] for gpu in found if not gpu["healthy"]}


def containers(case: Case) -> dict[str, list[tuple[str, int]]]:
    """Container ids and restarts of every pod: what a disturbed pod cannot keep."""

    def lives(pod: dict[str, Any]) -> list[tuple[str, int]]:
        states = pod["status"].get("containerStatuses", ())
        return [(state["containerID"], state["restartCount"]) for state in states]

    return {pod["metadata"]["name"]: lives(pod) for pod in case.pods()}


@pytest.fixture
def losing(environment: KindEnvironment, small: str) -> Iterator[Callable[[int], None]]:
    """Loses a GPU of the small node; whatever comes, all its GPUs are back when the case ends."""
    lost: list[int] = []

    def lose(gpu: int) -> None:
        lost.append(gpu)
        environment.break_gpus(small, f"gpu {gpu} lost")

    yield lose
    mend(environment, small, lost)


def mend(environment: KindEnvironment, node: str, lost: list[int]) -> None:
    """Let lost GPUs answer again and wait until the node offers them."""
    lines = [f"gpu {gpu} {state}" for gpu in lost for state in ("lost", "recovered")]
    environment.break_gpus(node, *lines)
    until("all GPUs are published as healthy", lambda: unhealthy(environment, node) == set())
    whole = sum(gpu.units for gpu in environment.nodes[node])
    until("all GPUs are offered", lambda: offered(environment, node) == whole)


def test_a_plain_install_names_the_pod_that_uses_more_than_its_share(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """Beside it on the GPU runs another pod; the node's processes tell them apart."""
    greedy, modest = (case.pod(name, 2, node=small) for name in ("greedy", "modest"))
    case.create_running(greedy, modest)
    gpus = case.gpus()
    assert gpus["greedy"] == gpus["modest"]
    pid = first_pid(environment, case, "greedy")
    process = f"gpu {gpus['greedy']} process pid {pid} used_mib 4096 name greedy"
    environment.break_gpus(small, process)
    try:
        (message,) = until(
            "the pod has an event about its over-use",
            lambda: case.events("GpuMemoryOverused", "greedy"),
        )
    finally:
        environment.break_gpus(small)
    assert message == f"uses 4096 MiB of GPU {gpus['greedy']}, but its share is 2048"
    assert not case.events("GpuMemoryOverused", "modest")
    assert case.ready("greedy"), "it gets an event and is not ended"


@pytest.mark.parametrize("burst", [1, pytest.param(2, marks=pytest.mark.ondemand)])
def test_sixteen_halves_at_once_end_two_on_each_of_eight_gpus(
    environment: KindEnvironment, case: Case, large: str, burst: int
) -> None:
    """The burst on which others put four pods on a GPU: here kubelet and annotations agree."""
    gpus = environment.nodes[large]
    half = gpus[0].units // 2
    names = [f"half-{burst}-{i}" for i in range(2 * len(gpus))]
    case.create_running(*(case.pod(name, half, node=large) for name in names))
    uuid = {gpu.index: gpu.uuid for gpu in gpus}

    def agree() -> bool:
        held = {h.pod: set(h.gpus) for h in podresources.allocated(environment, large)}
        indexes = case.gpus()
        return all(held.get(name) == {uuid[indexes[name]]} for name in names)

    until("annotations agree with kubelet", agree)
    assert Counter(case.gpus().values()) == {gpu.index: 2 for gpu in gpus}


def test_a_lost_gpu_is_withdrawn_its_pods_are_notified_and_it_comes_back(
    environment: KindEnvironment, case: Case, small: str, losing: Callable[[int], None]
) -> None:
    """One GPU falls off the bus: the other goes on as before, new pods avoid the lost one.

    Small shares, because Kubernetes goes on counting the struck pod against what the node still
    offers until it is deleted.
    """
    size = environment.nodes[small][0].units
    case.run_in_turn(*(spread(case.pod(name, 3, node=small)) for name in ("stays", "struck")))
    assert {case.gpu("stays"), case.gpu("struck")} == {0, 1}
    lost = case.gpu("struck")
    before = containers(case)

    losing(lost)
    until("the lost GPU is withdrawn", lambda: offered(environment, small) == size)
    until("it is published as unhealthy", lambda: unhealthy(environment, small) == {lost})
    until(
        "the pod on it has an event",
        lambda: [text for text in warnings(case, "struck") if str(lost) in text],
    )
    assert warnings(case, "stays") == []
    case.create_running(case.pod("fits-beside", 2, node=small))
    assert case.gpu("fits-beside") == case.gpu("stays")
    assert containers(case).items() >= before.items()

    mend(environment, small, [lost])
    case.create_running(spread(case.pod("on-it-again", 3, node=small)))
    assert case.gpu("on-it-again") == lost


def test_a_restarted_kubelet_gets_the_same_devices_and_disturbs_nobody(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """The plugin sees the new socket and registers again; ids are those of before.

    Kubelet itself would fail a pod that reaches it before the plugin has registered again.
    """
    size = environment.nodes[small][0].units
    case.create_running(case.pod("before", size - 4, node=small))
    lives = containers(case)
    held = {h.pod: h.gpus for h in podresources.allocated(environment, small)}
    environment.restart_kubelet(small)
    until(
        "the plugin has registered again",
        lambda: podresources.allocatable(environment, small) == 2 * size,
    )
    case.kubectl.apply(case.deployment("after", 4, replicas=1, node=small))
    case.wait_available("after")
    (after,) = case.running("after")
    assert case.gpu(after) == case.gpu("before")
    assert containers(case).items() >= lives.items()
    after_restart = {h.pod: h.gpus for h in podresources.allocated(environment, small)}
    assert after_restart["before"] == held["before"]


def test_a_replaced_plugin_disturbs_no_pod_and_knows_them_all(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """An upgrade of the plugin: its successor finds the shares that are out and respects them."""
    size = environment.nodes[small][0].units
    case.create_running(
        case.pod("left", size - 4, node=small), case.pod("right", size - 5, node=small)
    )
    lives = containers(case)
    daemons = environment.kubectl("get", "daemonset", "-n", environment.namespace, "-o", "name")
    environment.kubectl("rollout", "restart", "-n", environment.namespace, *daemons.split())
    environment.wait_ready()
    case.create_running(case.pod("five", 5, node=small), case.pod("four", 4, node=small))
    assert case.gpu("five") == case.gpu("right")
    assert case.gpu("four") == case.gpu("left")
    assert containers(case).items() >= lives.items()


def spread(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, asking for the emptiest GPU."""
    pod["metadata"]["annotations"] = {"gpushare/policy": "spread"}
    return pod


def warnings(case: Case, pod: str) -> list[str]:
    """Messages of a pod's warning events about its GPU."""
    events = case.kubectl.items("events", "-n", case.name, "--field-selector", "type=Warning")
    return [
        event["message"]
        for event in events
        if event["involvedObject"].get("name") == pod and "GPU" in event["message"]
    ]
