"""``gpushare verify`` on nodes whose containers have a stand-in for CUDA: holds, red, and gone."""

import json
import random
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from environments import machines
from environments.case import Case
from environments.drivermode import MACHINE, LimitedNode, limited
from environments.environment import MachineGpu
from environments.kind import KindEnvironment
from environments.proof import ProvingNodes, VerifyAnswer, proving
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.since("1.28"), pytest.mark.timeout(1200)]

BUDGET_SECONDS = 300
"""For two nodes; six GPUs in all."""
ISOLATION = "gpushare/gpu-isolation"
UNLIMITED_RUNS = 3
"""The plugin sets a limit again within a second, and a run may look just then."""


@pytest.fixture(scope="module")
def driver_node(environment: KindEnvironment, small: str) -> Iterator[LimitedNode]:
    """The small node, with GPUs whose driver limits memory."""
    with limited(environment, small) as found:
        yield found


@pytest.fixture(scope="module")
def mps_node(environment: KindEnvironment, large: str) -> Iterator[str]:
    """The large node with one GPU behind MPS: eight daemons keep a small machine busy."""
    environment.kubectl("annotate", "node", large, f"{ISOLATION}=0=mps", "--overwrite")
    try:
        until("GPU 0 has mode mps", lambda: _first_gpu(environment, large) == ("mps", True))
        yield large
    finally:
        environment.kubectl("annotate", "node", large, f"{ISOLATION}-")
        until("GPU 0 has mode none", lambda: _first_gpu(environment, large)[0] == "none")


def _first_gpu(environment: KindEnvironment, node: str) -> tuple[str, bool]:
    """Mode and health of the first GPU, as published."""
    annotations = environment.objects.node(node)["metadata"]["annotations"]
    gpu = json.loads(annotations["gpushare/inventory"])["gpus"][0]
    return gpu["mode"], gpu["healthy"]


@pytest.fixture(scope="module")
def gpus(
    environment: KindEnvironment, driver_node: LimitedNode, mps_node: str
) -> Mapping[str, tuple[MachineGpu, ...]]:
    """The GPUs of both nodes as they are now."""
    return {driver_node.name: machines.gpus(MACHINE), mps_node: environment.nodes[mps_node]}


@pytest.fixture(scope="module")
def nodes(
    environment: KindEnvironment, gpus: Mapping[str, tuple[MachineGpu, ...]]
) -> Iterator[ProvingNodes]:
    """Both nodes with CUDA in their containers."""
    with proving(environment, gpus) as found:
        yield found


@pytest.fixture
def healed(
    nodes: ProvingNodes, gpus: Mapping[str, tuple[MachineGpu, ...]]
) -> Iterator[ProvingNodes]:
    """The same; what a test breaks is mended afterwards."""
    yield nodes
    for node, each in gpus.items():
        nodes.faults(node)
        nodes.give(node, {gpu.uuid: gpu for gpu in each})


def test_every_row_is_proven_on_two_nodes_in_five_minutes(
    nodes: ProvingNodes, driver_node: LimitedNode, mps_node: str
) -> None:
    """What each isolation mode promises holds, and nothing of the run is left."""
    begin = time.monotonic()
    answer = nodes.verify("--starts", "3", "-o", "json")
    assert time.monotonic() - begin < BUDGET_SECONDS
    found = {gpu["mode"]: gpu for gpu in json.loads(answer.out)["items"]}
    rows = {
        mode: {row["row"]: row["verdict"] for row in gpu["rows"]} for mode, gpu in found.items()
    }
    assert rows["driver"] == dict.fromkeys(rows["driver"], "pass") | {
        "compute": "skip",
        "overhead": "skip",
    }, answer.out
    assert rows["mps"] == dict.fromkeys(rows["mps"], "pass") | {
        "processes": "known",
        "burst": "skip",
        "overhead": "skip",
    }, answer.out
    why = {r["row"]: r["seen"] for gpu in found.values() for r in gpu["rows"]}["overhead"]
    assert "sets NVIDIA_VISIBLE_DEVICES" in why  # the webhook refuses it, before the policy
    assert answer.code == 0
    assert driver_node.name not in answer.out
    assert mps_node not in answer.out
    assert not nodes.left()


def sampled(names: Iterable[str], *always: str) -> list[Any]:
    """These in every run, the others on demand: a fault takes most of a minute on a cluster.

    Unit tests of the command see every one of them on a cluster that runs its pods as processes.
    """
    return [
        pytest.param(name, marks=() if name in always else pytest.mark.ondemand) for name in names
    ]


DRIVER_FAULTS = {
    "driver ignores the limit": ("ignore-limit", "memory", "no refusal"),
    "no limit for all processes": ("ignore-limit", "processes", "MiB: fork"),
    "no limit for a burst": ("ignore-limit", "burst", "no refusal"),
    "neighbour starved": ("starve", "neighbour", "of its speed"),
    "neighbour's memory changed": ("disturb", "neighbour", "memory of the neighbour was changed"),
    "two at once get little": ("crowded", "sharing", "of the speed alone"),
    "fault spreads": ("spread", "neighbour", "CUDA_ERROR_ILLEGAL_ADDRESS"),
}
MPS_FAULTS = {
    "MPS down": ("no-mps", "memory", "no refusal"),
    "threads ignored": ("ignore-threads", "compute", "% reaches"),
}


def red(nodes: ProvingNodes, node: str, row: str, words: str) -> None:
    """The row fails with these words and a next step, and the command with exit code 1."""
    only = f"share,{row}" if row == "compute" else row
    answer = nodes.verify("--node", node, "--only", only, "-o", "json")
    found = answer.rows[row]
    assert found["verdict"] == "fail", answer.out
    assert words in found["seen"]
    assert found["nextStep"]
    assert answer.code == 1


@pytest.mark.parametrize(
    "fault", sampled(DRIVER_FAULTS, "driver ignores the limit", "neighbour starved")
)
def test_a_broken_driver_turns_its_row_red(
    fault: str, healed: ProvingNodes, driver_node: LimitedNode
) -> None:
    """On the node whose driver limits memory."""
    word, row, words = DRIVER_FAULTS[fault]
    healed.faults(driver_node.name, word)
    red(healed, driver_node.name, row, words)


@pytest.mark.parametrize("fault", sampled(MPS_FAULTS, "MPS down"))
def test_broken_mps_turns_its_row_red(fault: str, healed: ProvingNodes, mps_node: str) -> None:
    """On the node behind MPS."""
    word, row, words = MPS_FAULTS[fault]
    healed.faults(mps_node, word)
    red(healed, mps_node, row, words)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("share", "CUDA sees GPU"),
        pytest.param("accounting", "process: GPU", marks=pytest.mark.ondemand),
    ],
)
def test_a_wrong_cdi_file_turns_its_rows_red(
    row: str,
    words: str,
    healed: ProvingNodes,
    driver_node: LimitedNode,
    gpus: Mapping[str, tuple[MachineGpu, ...]],
) -> None:
    """The file gives a container the other GPU of the node."""
    first, second = gpus[driver_node.name]
    healed.give(driver_node.name, {first.uuid: second, second.uuid: first})
    red(healed, driver_node.name, row, words)


def test_a_limit_that_is_off_turns_memory_red(
    environment: KindEnvironment, nodes: ProvingNodes, driver_node: LimitedNode, tmp_path: Path
) -> None:
    """Somebody takes the limits of pods off as soon as the plugin sets them."""
    state = environment.folder / driver_node.name / "state"
    answers: list[str] = []
    for number in range(UNLIMITED_RUNS):
        output = tmp_path / f"answer-{number}.json"
        answer = without_limits(nodes, driver_node, state, output)
        answers.append(answer.out)
        row = answer.rows["memory"]
        if row["verdict"] == "fail" and "no refusal" in row["seen"]:
            assert answer.code == 1
            return
    pytest.fail("\n".join(answers))


def without_limits(
    nodes: ProvingNodes, driver_node: LimitedNode, state: Path, output: Path
) -> VerifyAnswer:
    """The answer of a run of the row memory, during which limits are taken off.

    Args:
        nodes: where ``gpushare verify`` runs.
        driver_node: whose driver limits memory.
        state: of its mock driver, with the limits.
        output: file for the answer.
    """
    with output.open("wb") as file:
        run = nodes.begin("--node", driver_node.name, "--only", "memory", "-o", "json", output=file)
    while run.poll() is None:
        lines = state.read_text().splitlines()
        last = {line.split()[-1]: line for line in lines if " memory_limit " in line}
        for cgroup, line in last.items():
            if line.split()[4] != str((1 << 64) - 1):
                driver_node.happens(f"{' '.join(line.split()[:3])} 0 {(1 << 64) - 1} {cgroup}")
        time.sleep(0.01)
    return VerifyAnswer(run.returncode, output.read_text(), "")


def test_a_full_gpu_is_refused_and_running_pods_stay(
    case: Case, nodes: ProvingNodes, driver_node: LimitedNode
) -> None:
    """Nothing is created, and the message has what would be needed."""
    units = driver_node.units()
    pods = [case.pod(f"full-{n}", units - 1, node=driver_node.name) for n in range(2)]
    case.create_running(*pods)
    answer = nodes.verify("--node", driver_node.name)
    assert answer.code == 1
    assert "verify needs 3 units" in " ".join(answer.err.split())
    assert not nodes.left()
    assert all(case.ready(f"full-{n}") for n in range(2))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("turn", sampled("012", "0"))
def test_an_interrupted_run_removes_its_objects(
    turn: str, number: signal.Signals, nodes: ProvingNodes, driver_node: LimitedNode
) -> None:
    """At a random moment; the pods are gone with the namespace before the command ends."""
    run = nodes.begin("--node", driver_node.name, "--only", "quick,neighbour")
    time.sleep(random.Random(f"{turn} {number}").uniform(1.0, 12.0))
    run.send_signal(number)
    assert run.wait(180) != 0
    assert not nodes.left()


def test_a_run_that_is_killed_is_removed_at_its_deadline(
    nodes: ProvingNodes, driver_node: LimitedNode
) -> None:
    """The guard deletes the namespace, and all pods with it."""
    run = nodes.begin("--node", driver_node.name, "--only", "quick,neighbour", "--timeout", "30")
    until("the guard is there", nodes.guards)
    run.kill()
    run.wait(60)
    assert nodes.left()
    until("the guard has removed it", lambda: not nodes.left(), seconds=180)
