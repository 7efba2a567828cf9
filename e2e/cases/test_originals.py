"""Workloads of the original stack run unchanged on the stack as it is installed by default."""

import json

import pytest

from environments import originals, rollouts
from environments.case import Case
from environments.environment import Environment
from environments.kind import NAMESPACE, KindEnvironment
from environments.waiting import until
from environments.workloads import GPU_MEM, SCHEDULER, Object

pytestmark = pytest.mark.e2e

CALLS = 6
"""Enough to reach each of its pods, among which the calls are distributed at random."""
PLACED = [name for name in originals.NAMES if name not in originals.WAITING]
GPUS = ("ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_GROUP")
"""Annotations that name the GPUs of a share and of exclusive GPUs."""


@pytest.fixture(autouse=True)
def webhook(environment: KindEnvironment, case: Case) -> None:
    """The webhook answers: while it does not, pods are created as they were written.

    The nodes learn of a new pod of it later than its Deployment, and of one that is gone too.
    """
    labels = "app.kubernetes.io/component=webhook"
    rollouts.wait(environment.kubectl, NAMESPACE, labels=labels)
    until("the webhook answers each time", lambda: all(changes(case) for _ in range(CALLS)))


def changes(case: Case) -> bool:
    """Whether a pod with a share that is created now gets our scheduler."""
    pod = case.pod("probe", 1)
    del pod["spec"]["schedulerName"]
    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    created = json.loads(case.kubectl(*dry, stdin=json.dumps(pod)))
    return bool(created["spec"]["schedulerName"] == SCHEDULER)


def create(case: Case, name: str, node: str | None = None) -> None:
    """Apply a workload of the originals; on one node where the case requires it."""
    found = originals.objects(name, image=case.environment.image, namespace=case.name)
    if node:
        found[0]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    case.kubectl.apply(*found)


@pytest.mark.parametrize("name", PLACED)
def test_a_workload_of_the_originals_runs_as_it_is(case: Case, name: str) -> None:
    """Nothing but the image is changed: all its pods get the scheduler, GPUs, and run."""
    create(case, name)
    wanted = len(originals.pods(name, image=case.environment.image))
    pods = until("its pods have GPUs", lambda: placed(case, wanted))
    assert {pod["spec"]["schedulerName"] for pod in pods} == {SCHEDULER}
    until("its pods run or have ended", lambda: started(case, wanted))


def placed(case: Case, wanted: int) -> list[Object]:
    """Its pods, once that many have their GPUs written down."""
    notes = [(pod, pod["metadata"].get("annotations", {})) for pod in case.pods()]
    found = [pod for pod, note in notes if any(gpu in note for gpu in GPUS)]
    return found if len(found) == wanted else []


def started(case: Case, wanted: int) -> bool:
    """That many pods run or have succeeded; a pod that its node refused is an error at once."""
    phases = [pod["status"]["phase"] for pod in case.pods()]
    assert "Failed" not in phases
    return sum(phase in {"Running", "Succeeded"} for phase in phases) >= wanted


def test_an_amount_that_was_meant_in_mib_waits(case: Case) -> None:
    """The fourth sample: its pod exists and waits, and its event names the resource."""
    create(case, "amount-in-mib")
    (pod,) = until("its pod exists", case.pods)
    name = pod["metadata"]["name"]
    until(
        "an event names the resource",
        lambda: f"Insufficient {GPU_MEM}" in " ".join(case.events("FailedScheduling", name)),
    )
    assert case.get(name)["status"]["phase"] == "Pending"


def test_a_pod_that_fits_the_node_and_no_gpu_waits_and_is_not_refused_again_and_again(
    environment: Environment, case: Case, small: str
) -> None:
    """10 units, and 8 of 15 free on each of two GPUs: one pod, which waits until a GPU has room."""
    create_fillers(environment, case, small)
    create(case, "fits-the-node-only", node=small)
    name = "fits-the-node-only"
    refusal = "Insufficient GPU Memory in one device"

    def reported() -> bool:
        return any(refusal in text for text in case.events("FailedScheduling", name))

    until("an event states why it waits", reported)
    pod = case.get(name)
    assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)
    assert case.events("UnexpectedAdmissionError", name) == []

    freed = case.gpu("left")
    case.delete("left")
    case.wait_running(name)
    assert case.gpu(name) == freed


def create_fillers(environment: Environment, case: Case, node: str) -> None:
    """One pod on each of the two GPUs of a node, so that 8 units are free on each."""
    used = environment.nodes[node][0].units - 8
    fillers = [case.pod(name, used, node=node) for name in ("left", "right")]
    for filler in fillers:
        filler["metadata"]["annotations"] = {"gpushare/policy": "spread"}
    case.run_in_turn(*fillers)
    assert {case.gpu("left"), case.gpu("right")} == {0, 1}
