"""Pods share GPUs: where they land, what containers see, and when a share is free again."""

import pytest

from environments.case import Case
from environments.environment import Environment
from environments.table import used
from environments.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.scheduling, pytest.mark.oldest]


def test_three_pods_of_two_units_share_the_fullest_gpu_that_fits(
    environment: Environment, case: Case, small: str
) -> None:
    """Upstream's first demo: binpack picks the fullest GPU, and the environment names it."""
    gpus = environment.nodes[small]
    case.create_running(case.pod("filler", 8, node=small))
    trio = [case.pod(f"share-{i}", 2, node=small) for i in range(3)]
    case.create_running(*trio)

    home = case.gpu("filler")
    for name in ("share-0", "share-1", "share-2"):
        assert case.gpu(name) == home
        assert case.annotations(name)["ALIYUN_COM_GPU_MEM_POD"] == "2"
        env = case.env(name)
        assert env["NVIDIA_VISIBLE_DEVICES"] == gpus[home].uuid
        assert env["ALIYUN_COM_GPU_MEM_IDX"] == str(home)
        assert env["ALIYUN_COM_GPU_MEM_POD"] == "2"
        assert env["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
        assert env["ALIYUN_COM_GPU_MEM_DEV"] == str(gpus[home].units)


def test_a_request_that_fits_the_node_but_no_gpu_waits_with_a_reason_and_starts_when_a_pod_ends(
    environment: Environment, case: Case, small: str
) -> None:
    """Upstream's second demo: the total is not enough, one GPU must have the units free."""
    size = environment.nodes[small][0].units
    case.create_running(
        case.pod("left", size - 5, node=small), case.pod("right", size - 5, node=small)
    )
    assert {case.gpu("left"), case.gpu("right")} == {0, 1}
    case.kubectl.apply(case.pod("wants-8", 8, node=small))

    def refusal() -> str | None:
        messages = case.events("FailedScheduling", "wants-8")
        return next((text for text in messages if "GPU 0" in text and "GPU 1" in text), None)

    message = until("a scheduling message that speaks of each GPU", refusal)
    assert f"5 of {size}" in message
    assert "Insufficient GPU Memory in one device" in message
    assert case.get("wants-8")["status"]["phase"] == "Pending"

    freed = case.gpu("left")
    case.delete("left")
    case.wait_running("wants-8")
    assert case.gpu("wants-8") == freed


def test_a_job_frees_its_units_when_it_completes(
    environment: Environment, case: Case, small: str
) -> None:
    """Succeeded pods keep their object but not their share."""
    case.kubectl.apply(case.job("sum", 4, node=small, script="echo $ALIYUN_COM_GPU_MEM_CONTAINER"))
    case.kubectl(
        "wait",
        "job/sum",
        "-n",
        case.name,
        "--for=condition=complete",
        f"--timeout={PATIENCE_SECONDS}s",
    )
    (pod,) = case.pods()
    assert pod["status"]["phase"] == "Succeeded"
    log = case.kubectl("logs", pod["metadata"]["name"], "-n", case.name)
    assert log.strip() == "4"
    until("the job's units free", lambda: used(environment, small) == 0)
    case.create_running(case.pod("whole", environment.nodes[small][0].units, node=small))


def test_a_deleted_pod_frees_its_units(environment: Environment, case: Case, small: str) -> None:
    """The share of a deleted pod can be taken by the next."""
    size = environment.nodes[small][0].units
    case.create_running(case.pod("first", size, node=small), case.pod("second", size, node=small))
    until("both GPUs full", lambda: used(environment, small) == 2 * size)
    case.delete("first")
    until("one GPU free", lambda: used(environment, small) == size)
    case.create_running(case.pod("third", size, node=small))


def test_a_pod_with_two_gpu_containers_gets_both_on_one_gpu_with_own_amounts(
    environment: Environment, case: Case, small: str
) -> None:
    """The originals fail this: they match a container's call against the pod's total."""
    gpus = environment.nodes[small]
    case.create_running(case.pod("pair", 3, 5, node=small))
    home = case.gpu("pair")
    for container, units in (("c0", "3"), ("c1", "5")):
        env = case.env("pair", container)
        assert env["NVIDIA_VISIBLE_DEVICES"] == gpus[home].uuid
        assert env["ALIYUN_COM_GPU_MEM_CONTAINER"] == units
    assert case.annotations("pair")["ALIYUN_COM_GPU_MEM_POD"] == "8"
