"""Exclusive GPUs: which group a pod gets on a DGX-1 with V100, and gangs that stay together."""

from collections.abc import Sequence

import pytest

from environments.case import Case
from environments.environment import Environment
from environments.podresources import GPU_MEM, allocated
from environments.waiting import PATIENCE_SECONDS, until
from environments.workloads import GPU, Object

pytestmark = [pytest.mark.e2e, pytest.mark.scheduling]

GROUP = "ALIYUN_COM_GPU_GROUP"
OLDEST = pytest.mark.oldest


@pytest.fixture
def empty(environment: Environment, linked: str) -> str:
    """The node with linked GPUs, of which kubelet has handed out none."""

    def nothing_held() -> bool:
        return not allocated(environment, linked, GPU, GPU_MEM)

    until("no GPU handed out", nothing_held)
    return linked


def whole(case: Case, name: str, gpus: int, node: str, *, size: int = 0) -> Object:
    """A pod of exclusive GPUs; with ``size`` one of a gang named after the case."""
    labels = {"gpu-topology": case.name, "gpu-topology-replica": str(size)} if size else {}
    return case.pod(name, gpus, node=node, resource=GPU, labels=labels)


def group(case: Case, name: str) -> list[int]:
    """The GPUs that the annotation names, in its order."""
    return [int(index) for index in case.annotations(name)[GROUP].split(",")]


def assert_really_on(environment: Environment, case: Case, names: Sequence[str], node: str) -> None:
    """Annotations, variables of the containers and kubelet name the same GPUs."""
    found = [one for one in allocated(environment, node, GPU) if one.namespace == case.name]
    for name in names:
        uuids = [environment.nodes[node][index].uuid for index in group(case, name)]
        env = case.env(name)
        assert env["NVIDIA_VISIBLE_DEVICES"].split(",") == uuids
        assert env[GROUP] == case.annotations(name)[GROUP]
        mine = [one for one in found if one.pod == name]
        assert [set(one.gpus) for one in mine] == [set(uuids)]


@pytest.mark.parametrize(
    ("order", "groups"),
    [
        pytest.param((2, 2, 2, 2), ([0, 3], [1, 2], [4, 7], [5, 6]), id="pairs"),
        pytest.param((1, 2, 4), ([0], [2, 3], [4, 5, 6, 7]), id="1-2-4", marks=OLDEST),
        pytest.param((4, 2, 1, 1), ([0, 1, 2, 3], [4, 7], [5], [6]), id="4-2-1-1"),
        pytest.param((2, 4, 2), ([0, 3], [4, 5, 6, 7], [1, 2]), id="2-4-2"),
        pytest.param((8,), ([0, 1, 2, 3, 4, 5, 6, 7],), id="8"),
    ],
)
def test_each_pod_gets_the_best_group_that_is_free(
    environment: Environment,
    case: Case,
    empty: str,
    order: Sequence[int],
    groups: Sequence[list[int]],
) -> None:
    """The groups that NVLinks make best, in env and at kubelet too, whatever the order."""
    names = [f"p{number}" for number in range(len(order))]
    pods = zip(names, order, strict=True)
    case.run_in_turn(*(whole(case, name, gpus, empty) for name, gpus in pods))
    assert [group(case, name) for name in names] == list(groups)
    assert_really_on(environment, case, names, empty)


def test_a_pod_that_finds_too_few_free_gpus_waits_and_reports_how_many_are(
    case: Case, empty: str
) -> None:
    """A share on a GPU makes it no GPU to have whole: seven are left for a pod of eight."""
    case.create_running(case.pod("share", 1, node=empty))
    case.kubectl.apply(whole(case, "eight", 8, empty))

    def refusal() -> str | None:
        messages = case.events("FailedScheduling", "eight")
        return next((text for text in messages if "7 of 8 GPUs are free" in text), None)

    until("a scheduling message with the figures", refusal)
    case.delete("share")
    case.wait_running("eight")


def test_a_training_job_of_two_gpus_completes_and_prints_them(
    environment: Environment, case: Case, empty: str
) -> None:
    """The sample job of the first topology plugin: two linked GPUs, seen from inside."""
    script = f"echo $NVIDIA_VISIBLE_DEVICES ${GROUP}"
    case.kubectl.apply(case.job("train", 2, node=empty, script=script, resource=GPU))
    case.kubectl(
        "wait",
        "job/train",
        "-n",
        case.name,
        "--for=condition=complete",
        f"--timeout={PATIENCE_SECONDS}s",
    )
    (pod,) = case.pods()
    uuids = [environment.nodes[empty][index].uuid for index in (0, 3)]
    log = case.kubectl("logs", pod["metadata"]["name"], "-n", case.name)
    assert log.split() == [",".join(uuids), "0,3"]


@pytest.mark.since("1.34")
def test_a_gang_with_a_gated_member_waits_and_reserves_nothing(
    environment: Environment, case: Case, empty: str
) -> None:
    """A gated pod may never come: others have the GPUs until the gate opens, then both run."""
    free, gated = (whole(case, name, 4, empty, size=2) for name in ("free", "gated"))
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    case.kubectl.apply(free, gated)
    sentence = f"gang {case.name} waits for 1 of its 2 pods"

    def reported() -> bool:
        return any(sentence in text for text in case.events("FailedScheduling", "free"))

    until("the pending member has an event with the reason", reported)
    case.create_running(whole(case, "stranger", 8, empty))
    case.kubectl("delete", "pod", "stranger", "-n", case.name)
    gates = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    case.kubectl("patch", "pod", "gated", "-n", case.name, "--type=json", f"--patch={gates}")
    case.wait_running("free", "gated")
    assert_really_on(environment, case, ["free", "gated"], empty)


@pytest.mark.oldest
def test_a_gang_takes_one_node_group_by_group(
    environment: Environment, case: Case, empty: str
) -> None:
    """Two pods of four GPUs that come at once: each has a half whose GPUs are all joined."""
    names = [f"worker-{i}" for i in range(2)]
    case.create_running(*(whole(case, name, 4, empty, size=2) for name in names))
    assert sorted(group(case, name) for name in names) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert_really_on(environment, case, names, empty)


def test_a_gang_that_does_not_fit_places_no_pod_and_reports_it(
    environment: Environment, case: Case, empty: str
) -> None:
    """Three pods of four GPUs on eight: all wait, nothing is taken, and others may have it."""
    names = [f"worker-{i}" for i in range(3)]
    case.kubectl.apply(*(whole(case, name, 4, empty, size=3) for name in names))
    sentence = f"gang {case.name} needs 3 x 4 GPUs: capacity for 2 members on 1 node"

    def all_reported() -> bool:
        events = (case.events("FailedScheduling", name) for name in names)
        return all(any(sentence in text for text in messages) for messages in events)

    until("every member has an event with the reason", all_reported)
    assert [case.get(name)["status"]["phase"] for name in names] == ["Pending"] * 3
    assert not allocated(environment, empty, GPU)
    case.create_running(whole(case, "other", 8, empty))
