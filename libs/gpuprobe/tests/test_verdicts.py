"""Verdicts: each check on figures that hold, and on the faults that it is for."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuprobe.checks import (
    burst,
    compute,
    exclusive,
    memory,
    neighbour,
    overhead,
    processes,
    share,
    sharing,
    starts,
)
from gpuprobe.checks.answers import MissingAnswerError, first, outcome, parsed, value
from gpuprobe.checks.share import RequestedShare
from gpuprobe.checks.verdicts import QUICK, ROWS, Proof, ProofVerdict, ended_early
from gpuprobe.names import OUT_OF_MEMORY

PASS, FAIL, KNOWN = ProofVerdict.PASS, ProofVerdict.FAIL, ProofVerdict.KNOWN
SKIP = ProofVerdict.SKIP
UUID = "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"
FILLED = {
    "allocated_mib": 4096,
    "reached_mib": 3700,
    "reported_total_mib": 4096,
    "refusal": OUT_OF_MEMORY,
    "intact": True,
    "released": True,
}
TOGETHER = {
    "allocated_mib": 4096,
    "fork_mib": 2048,
    "second_mib": 1500,
    "outside_mib": 0,
    "sum_mib": 3548,
    "refused": True,
}
QUIET = {
    "before_per_s": 100.0,
    "greedy_per_s": 90.0,
    "neighbour": "fine",
    "intact": True,
    "greedy_mib": 3700,
    "fault": "CUDA_ERROR_ILLEGAL_ADDRESS",
}
BURST = {
    "share_mib": 2048,
    "limit_mib": 4096,
    "reached_mib": 3700,
    "again_mib": 3700,
    "refusal": OUT_OF_MEMORY,
}
BOTH = {
    "alone_gflops": 100.0,
    "first_gflops": 52.0,
    "second_gflops": 47.0,
    "work": "fine",
    "intact": True,
}


def answered(*best_ms: float) -> list[dict[str, Any]]:
    """The answers of a pod to the work of the row ``overhead``."""
    return [{"do": "compute", "ok": {"milliseconds": [3 * ms, ms, 2 * ms]}} for ms in best_ms]


def slower(full_ms: float, small_ms: float) -> Proof:
    """The row ``overhead`` of a share with these times, where a bare pod takes 5 and 20 ms."""
    return overhead.proof(overhead.figures(answered(full_ms, small_ms), answered(5.0, 20.0)))


THREADS = {"tflops_100": 10.0, "tflops_50": 5.5, "tflops_10": 1.0}
PEERS = {"nvlinks": 2, "gb_per_s": 40.0, "direct": True}


def case(check: Callable[..., Proof], good: Mapping[str, Any], *mode: str, **bad: Any) -> Proof:
    """The verdict on good figures with some replaced."""
    return check({**good, **bad}, *mode)


def threads(found: Mapping[str, Any], given: str = "50") -> Proof:
    """Of pods whose variables have what they requested, but for one of 50 %."""
    variables = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": given} if given else {}
    answers = [{"do": "environment", "ok": {"variables": variables}}]
    return compute.proof(found, {100: "100", 50: compute.percent_given(answers), 10: "10"})


def peers(found: Mapping[str, Any]) -> Proof:
    """Over the link of the figures."""
    return exclusive.proof(found, link="NV2")


CASES = [
    (case(memory.proof, FILLED, "driver"), PASS, "after 3700 MiB"),
    (case(memory.proof, FILLED, "mps", reached_mib=6144, refusal=""), FAIL, "no refusal"),
    (case(memory.proof, FILLED, "driver", reached_mib=4097), FAIL, "after 4097 MiB"),
    (case(memory.proof, FILLED, "driver", reached_mib=2560), PASS, "after 2560 MiB"),
    (case(memory.proof, FILLED, "driver", reached_mib=2559), FAIL, "after 2559 MiB"),
    (case(memory.proof, FILLED, "driver", reached_mib=100), FAIL, "after 100 MiB"),
    (case(memory.proof, FILLED, "driver", intact=False), FAIL, "not intact"),
    (case(memory.proof, FILLED, "driver", released=False), FAIL, "could not be released"),
    (case(memory.proof, FILLED, "none", reached_mib=6144, refusal=""), KNOWN, "no refusal"),
    (case(memory.proof, FILLED, "none", reached_mib=100), FAIL, "after 100 MiB"),
    (case(memory.proof, FILLED, "none", reached_mib=1500, refusal=""), KNOWN, "rest of the GPU"),
    (case(memory.proof, FILLED, "driver", gpu_free_mib=512), PASS, "after 3700 MiB"),
    (case(memory.proof, FILLED, "driver", gpu_free_mib=511), SKIP, "full (511 MiB free)"),
    (case(memory.proof, FILLED, "driver", gpu_free_mib=0, reached_mib=100), FAIL, "100 MiB"),
    (case(memory.proof, FILLED, "driver", gpu_free_mib=0, reached_mib=4097), FAIL, "4097 MiB"),
    (case(processes.proof, TOGETHER, "driver"), PASS, "3548 MiB"),
    (case(processes.proof, TOGETHER, "driver", gpu_free_mib=0), SKIP, "full (0 MiB free)"),
    (case(processes.proof, TOGETHER, "driver", gpu_free_mib=0, sum_mib=4097), FAIL, "4097 MiB"),
    (case(processes.proof, TOGETHER, "driver", sum_mib=4097), FAIL, "4097 MiB"),
    (case(processes.proof, TOGETHER, "driver+mps", sum_mib=8000), FAIL, "8000 MiB"),
    (case(processes.proof, TOGETHER, "mps", sum_mib=8000), KNOWN, "8000 MiB"),
    (case(processes.proof, TOGETHER, "none", sum_mib=8000), KNOWN, "8000 MiB"),
    (case(processes.proof, TOGETHER, "none", refused=False), SKIP, "last 768 MiB of the GPU"),
    (case(processes.proof, TOGETHER, "none", sum_mib=8000, refused=False), KNOWN, "8000 MiB"),
    (case(processes.proof, TOGETHER, "driver", fork_mib=0), FAIL, "fork 0"),
    (case(neighbour.proof, QUIET, "driver"), PASS, "90% of its speed and intact"),
    (case(neighbour.proof, QUIET, "driver", greedy_per_s=59.0), FAIL, "kept 59%"),
    (case(neighbour.proof, QUIET, "driver", before_per_s=0.0), FAIL, "kept 0%"),
    (case(neighbour.proof, QUIET, "driver", greedy_mib=0), FAIL, "took no memory"),
    (case(neighbour.proof, QUIET, "mps", greedy_mib=0, neighbour="X"), FAIL, "took no memory"),
    (case(neighbour.proof, QUIET, "none", intact=False), FAIL, "was changed"),
    (case(neighbour.proof, QUIET, "driver", neighbour="ended"), FAIL, "ended with ended"),
    (case(neighbour.proof, QUIET, "mps", neighbour="X"), KNOWN, "ended with X"),
    (case(neighbour.proof, QUIET, "mps", neighbour="X", intact=False), FAIL, "was changed"),
    (case(sharing.proof, BOTH), PASS, "52% and 47% of the speed alone"),
    (case(sharing.proof, BOTH, second_gflops=29.0), FAIL, "52% and 29%"),
    (case(sharing.proof, BOTH, alone_gflops=0.0), FAIL, "0% and 0%"),
    (case(sharing.proof, BOTH, work="ended"), FAIL, "ended with ended"),
    (case(sharing.proof, BOTH, intact=False), FAIL, "was changed"),
    (slower(5.0, 20.0), PASS, "as fast"),
    (slower(4.0, 21.0), PASS, "5.0 % slower"),
    (slower(5.6, 20.0), FAIL, "12.0 % slower"),
    (slower(5.0, 23.0), FAIL, "15.0 % slower"),
    (case(burst.proof, BURST), PASS, "3700 MiB after that"),
    (case(burst.proof, BURST, gpu_free_mib=0, again_mib=1948), SKIP, "full (0 MiB free)"),
    (case(burst.proof, BURST, gpu_free_mib=0, again_mib=4097), FAIL, "4097 MiB after that"),
    (case(burst.proof, BURST, reached_mib=6144, refusal=""), FAIL, "no refusal"),
    (case(burst.proof, BURST, reached_mib=1024), FAIL, "after 1024 MiB"),
    (
        case(burst.proof, BURST, share_mib=1024, limit_mib=2048, reached_mib=1024, again_mib=1024),
        FAIL,
        "after 1024 MiB",
    ),
    (case(burst.proof, BURST, reached_mib=1948, again_mib=1848), FAIL, "after 1948 MiB"),
    (case(burst.proof, BURST, again_mib=1948), FAIL, "1948 MiB after that"),
    (case(burst.proof, BURST, again_mib=4097), FAIL, "4097 MiB after that"),
    (case(threads, THREADS), PASS, "50 % reaches 55%"),
    (case(threads, THREADS, "3"), FAIL, "PERCENTAGE is 3 in a pod with 50 %"),
    (case(threads, THREADS, ""), FAIL, "PERCENTAGE is not set in a pod with 50 %"),
    (case(threads, THREADS, tflops_50=10.0), FAIL, "50 % reaches 100%"),
    (case(threads, THREADS, tflops_50=1.0), FAIL, "50 % reaches 10%"),
    (case(threads, THREADS, tflops_10=9.0), FAIL, "10 % reaches 90%"),
    (case(peers, PEERS), PASS, "40.0 GB/s directly"),
    (case(peers, PEERS, gb_per_s=5.0), FAIL, "5.0 GB/s"),
    (case(peers, PEERS, direct=False), FAIL, "through the host"),
    (starts.proof(starts.figures([1.0, 2.0])), PASS, "of 2"),
    (starts.proof(starts.figures([1.0, 61.0])), FAIL, "p99 61.0 s"),
    (neighbour.health_proof(QUIET, healthy=True), PASS, "healthy: yes"),
    (neighbour.health_proof(QUIET, healthy=False), FAIL, "healthy: no"),
    (ended_early("share", "it is gone"), FAIL, "it is gone"),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_verdict_follows_from_the_figures(number: int) -> None:
    """A row that does not hold states what was seen, and what to do next."""
    proof, verdict, words = CASES[number]
    assert proof.verdict is verdict, proof
    assert words in proof.seen
    assert bool(proof.next_step) == (verdict in {FAIL, KNOWN})
    assert proof.row in ROWS


@pytest.mark.parametrize("check", ["memory", "processes"])
def test_a_node_with_the_label_is_not_told_to_have_it(check: str) -> None:
    """A GPU is in mode none as well where its driver cannot have the mode, or a limit is off."""
    proofs = {
        "memory": case(memory.proof, FILLED, "none", reached_mib=6144, refusal=""),
        "processes": case(processes.proof, TOGETHER, "none", sum_mib=8000),
    }
    assert "where it has that label, read its events GpuIsolation" in proofs[check].next_step


@pytest.mark.parametrize("free", [7424, 8000, 16384, 143771])
def test_three_processes_stay_within_what_is_free_with_their_contexts(free: int) -> None:
    """Where no limit holds each takes what it asks for, and its CUDA context beside that."""
    allocated = processes.most_allocated_mib(free)
    assert allocated >= 2048
    first, second, _ = processes.steps(allocated)
    steps = [*first["steps"], *second["steps"], *processes.outside_steps(allocated)]
    taken = sum(each["most_mib"] + memory.MARGIN_MIB for each in steps)
    assert taken <= processes.needed_mib(allocated) <= free


@pytest.mark.parametrize("mode", ["none", "mps", "driver", "driver+mps"])
def test_only_a_limit_is_tried_until_it_refuses(mode: str) -> None:
    """Without one the whole GPU would be taken, and its other pods would run out of memory."""
    assert (memory.spare_mib(mode) == 0) == (mode in memory.LIMITED)


def test_every_row_has_a_verdict_that_is_red() -> None:
    """A check that cannot fail proves nothing; share and accounting have tests of their own."""
    red = {proof.row for proof, verdict, _ in CASES if verdict is FAIL}
    assert red | {"accounting"} == set(ROWS)
    assert set(QUICK) < set(ROWS)


def test_the_speed_of_two_pods_is_compared_with_that_of_the_first_before() -> None:
    """Of the first only what it did while the second worked counts as together."""

    def stint(start: float, end: float, operations: float) -> dict[str, Any]:
        ok = {"operations": operations * 1e9, "seconds": end - start, "intact": True}
        return {"do": "stint", "from": start, "to": end, "ok": ok}

    first = [stint(0, 1, 100), stint(1, 2, 100), stint(2, 3, 60), stint(3, 4, 60), stint(4, 5, 99)]
    second = [stint(2, 3, 40), stint(3, 4, 40)]
    found = sharing.figures(first, second)
    rates = [found[f"{which}_gflops"] for which in ("alone", "first", "second")]
    assert rates == [100, 60, 40]
    assert (found["work"], found["intact"]) == ("fine", True)
    failed = {**second[1], "ok": {**second[1]["ok"], "intact": False}}
    ended = {"do": "stint", "from": 5, "to": 5, "error": {"name": "ended", "code": -1, "call": ""}}
    found = sharing.figures([*first, ended], [second[0], failed])
    assert (found["work"], found["intact"]) == ("ended", False)
    with pytest.raises(MissingAnswerError, match="the second pod did not begin to work"):
        sharing.figures(first, [])


def test_work_that_was_refused_leaves_no_figure() -> None:
    """Neither a kernel size nor a time is made up."""
    refused = {"do": "compute", "error": {"name": "X", "code": 1, "call": "cuInit"}}
    with pytest.raises(MissingAnswerError, match="cuInit: X"):
        overhead.figures([refused], answered(1, 1))
    with pytest.raises(MissingAnswerError, match="before its work"):
        overhead.figures(answered(1, 1), answered(1))
    with pytest.raises(MissingAnswerError, match="cuInit: X"):
        overhead.working(8, [refused, refused])
    with pytest.raises(MissingAnswerError, match="before its kernels"):
        overhead.working(8, [])
    assert overhead.refusal([refused]) == "cuInit: X"
    assert overhead.refusal([answered(1, 1)[0], refused]) == "cuInit: X"
    assert overhead.refusal(answered(1, 1)[:1]) == "a process ended before its last step"
    assert overhead.refusal(answered(1, 1)) == ""


STOPPED: dict[str, Any] = {"ok": {"held_mib": 1500, "refusal": ""}}


def taken(*answers: dict[str, Any], outside: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The answers of the row ``processes``; the second program's are given."""
    held = {"ok": {"held_mib": 2048}}
    entered = outside or {"ok": {"held_mib": 0, "refusal": OUT_OF_MEMORY}}
    return [
        {"do": "child", "name": processes.FIRST, "ok": {"answers": [{"ok": {}}, held]}},
        {"do": "child", "name": processes.SECOND, "ok": {"answers": list(answers)}},
        {"do": "outside", "ok": {"answers": [entered]}},
    ]


def refused(name: str, call: str = "") -> dict[str, Any]:
    """The answer to a command that failed."""
    return {"error": {"name": name, "code": -1, "call": call}}


def test_a_process_without_memory_for_its_context_has_reached_nothing() -> None:
    """The limit refused it, in the container and from outside."""
    none = refused(OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain")
    found = processes.figures(4096, taken(none, outside=none))
    assert (found["second_mib"], found["outside_mib"], found["sum_mib"]) == (0, 0, 2048)
    assert processes.proof(found, "driver").verdict is PASS


def test_processes_that_stopped_by_themselves_show_no_limit() -> None:
    """Without isolation each leaves the end of the GPU to others: nothing held it there."""
    left = {"ok": {"held_mib": 0, "refusal": ""}}
    found = processes.figures(4096, taken(STOPPED, outside=left))
    assert processes.proof(found, "none").verdict is SKIP
    stopped_by_limit = processes.figures(4096, taken(STOPPED))
    assert processes.proof(stopped_by_limit, "driver").verdict is PASS


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (taken(refused("ended")), "ended without an answer"),
        (taken({"ok": {}}, refused("ended")), "ended without an answer"),
        (taken(refused("CUDA_ERROR_NO_DEVICE", "cuInit")), "cuInit: CUDA_ERROR_NO_DEVICE"),
        (taken(STOPPED, outside=refused("CUDA_ERROR_X", "cuInit")), "CUDA_ERROR_X"),
    ],
)
def test_a_process_that_failed_otherwise_shows_no_limit(
    answers: list[dict[str, Any]], words: str
) -> None:
    """One that was killed for want of host memory, or has no GPU, was not held to the share."""
    with pytest.raises(MissingAnswerError, match=words):
        processes.figures(4096, answers)


def test_a_fault_that_is_not_refused_says_nothing_of_health() -> None:
    """Nothing happened that could have made the GPU unhealthy."""
    proof = neighbour.health_proof({**QUIET, "fault": "fine"}, healthy=True)
    assert proof.verdict is ProofVerdict.SKIP


ASKED = RequestedShare(
    units=4,
    unit_mib=1024,
    index=1,
    uuid=UUID,
    assigned_units=4,
    confirmed=True,
    mode="driver",
)
VARIABLES = {
    "ALIYUN_COM_GPU_MEM_IDX": "1",
    "ALIYUN_COM_GPU_MEM_CONTAINER": "4",
    "ALIYUN_COM_GPU_MEM_POD": "4",
    "GPUSHARE_MEM_LIMIT_MIB": "4096",
    "NVIDIA_GPU_MEMORY_LIMIT": "4096",
    "NVIDIA_VISIBLE_DEVICES": UUID,
}
CUDA = {"uuid": UUID, "gpus_seen": 1}


def arrived(cuda: dict[str, Any] | None = None, **variables: str) -> list[dict[str, Any]]:
    """The answers of a container that got its share, with some of it replaced."""
    found = {"variables": {**VARIABLES, **variables}, "devices": []}
    described = {"ok": {**CUDA, **(cuda or {})}}
    child = {"do": "child", "name": share.ALONE, "ok": {"answers": [described]}}
    return [{"do": "environment", "ok": found}, child]


def test_a_share_that_arrives_passes() -> None:
    """Variables and CUDA agree with the annotation."""
    assert share.share_proof(ASKED, arrived()).verdict is PASS
    assert share.accounting_proof(ASKED, arrived()).verdict is PASS


def test_a_gpu_that_comes_by_cdi_is_judged_by_what_cuda_sees() -> None:
    """NVIDIA's runtime in CDI mode sets the variable to void, for the right GPU and a wrong one."""
    by_cdi = {"NVIDIA_VISIBLE_DEVICES": "void"}
    proof = share.share_proof(ASKED, arrived(**by_cdi))
    assert proof.verdict is PASS
    assert "came by CDI" in proof.seen
    wrong = share.share_proof(ASKED, arrived({"uuid": "GPU-x"}, **by_cdi))
    assert (wrong.verdict, wrong.seen) == (FAIL, "CUDA sees GPU GPU-x")
    more = share.share_proof(ASKED, arrived({"gpus_seen": 2}, **by_cdi))
    assert (more.verdict, more.seen) == (FAIL, "CUDA sees 2 GPUs")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (arrived(GPUSHARE_MEM_LIMIT_MIB="1"), "GPUSHARE_MEM_LIMIT_MIB is 1, not 4096"),
        (arrived(NVIDIA_GPU_MEMORY_LIMIT="9"), "NVIDIA_GPU_MEMORY_LIMIT is 9, not 4096"),
        (arrived(NVIDIA_VISIBLE_DEVICES="all"), "NVIDIA_VISIBLE_DEVICES is all"),
        (arrived({"gpus_seen": 2}), "CUDA sees 2 GPUs"),
        (arrived({"uuid": "GPU-x"}), "CUDA sees GPU GPU-x"),
    ],
)
def test_a_share_that_is_another_is_named(answers: list[dict[str, Any]], words: str) -> None:
    """Each difference."""
    proof = share.share_proof(ASKED, answers)
    assert proof.verdict is FAIL
    assert words in proof.seen


@pytest.mark.parametrize(
    ("changed", "answers", "words"),
    [
        ({"assigned_units": 3}, arrived(), "scheduler: 3 units on GPU 1"),
        ({"index": 0}, arrived(), "scheduler: 4 units on GPU 0"),
        ({"confirmed": False}, arrived(), "has not confirmed"),
        ({"assigned_units": 3}, arrived(ALIYUN_COM_GPU_MEM_CONTAINER="3"), "kubelet: 3 units"),
        ({}, arrived(ALIYUN_COM_GPU_MEM_CONTAINER="5"), "kubelet: 5 units"),
        ({}, arrived({"uuid": "GPU-x"}), "process: GPU GPU-x"),
    ],
)
def test_accounts_that_differ_are_named(
    changed: dict[str, Any], answers: list[dict[str, Any]], words: str
) -> None:
    """Which component has what."""
    asked = RequestedShare(**{**ASKED.__dict__, **changed})
    proof = share.accounting_proof(asked, answers)
    assert proof.verdict is FAIL
    assert words in proof.seen


def test_a_log_is_read_with_what_else_is_in_it() -> None:
    """Warnings of libraries, and the half of a line that is being written."""
    log = 'warning\n{"do": "a", "ok": {}}\n[1]\n{"do": "b", "o'
    assert [each["do"] for each in parsed(log)] == ["a"]


def test_what_did_not_run_is_a_sentence() -> None:
    """A refusal has the call and its error, a missing step its name."""
    refusal = {"do": "a", "error": {"name": "CUDA_ERROR_X", "code": 1, "call": "cuInit"}}
    with pytest.raises(MissingAnswerError, match="cuInit: CUDA_ERROR_X"):
        value(refusal)
    with pytest.raises(MissingAnswerError, match="before the step b"):
        first([refusal], "b")
    assert outcome(refusal) == "CUDA_ERROR_X"
