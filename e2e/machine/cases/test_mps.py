"""MPS by NVIDIA's own control daemon, which runs without a GPU as long as no server is needed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import offline
from environments.case import Case
from environments.machines import IN_NODE
from environments.waiting import until
from host.testing.obtaining import obtained
from machine.accounts import agree, fill, lives, sharing
from machine.environment import MachineEnvironment
from machine.nodefiles import NODE
from machine.running import running

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

PROGRAM = "nvidia-cuda-mps-control"
ROOT = "/run/gpushare/mps"
USER = 1000
UNITS = 8
CONNECT = """
import os, socket
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
print(os.getuid())
"""


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    """A machine with NVIDIA's program, which the plugin starts."""
    program: Path = obtained(offline.ensure_mps_control)
    place = f"{IN_NODE}/{PROGRAM}".removeprefix("/")
    mps = {"enabled": True, "control": f"/machine/{PROGRAM}"}
    yield from running(request, MachineEnvironment(files={place: program}, values={"mps": mps}))


def healthy_modes(environment: MachineEnvironment) -> list[str]:
    """Isolation mode of each healthy GPU, as published."""
    annotations = environment.objects.node(NODE)["metadata"]["annotations"]
    inventory = json.loads(annotations.get("gpushare/inventory", '{"gpus": []}'))
    return [gpu["mode"] for gpu in inventory["gpus"] if gpu["healthy"]]


def daemon(environment: MachineEnvironment, uuid: str) -> str:
    """Process id of the control daemon of a GPU; empty where none runs."""
    mine = f"grep -q PIPE_DIRECTORY={ROOT}/{uuid}/pipe /proc/$each/environ"
    each = f"for each in $(pidof {PROGRAM}); do {mine} && echo $each; done; true"
    return environment.machine.shell(each).strip()


def answer(environment: MachineEnvironment, uuid: str, command: str) -> str:
    """What the daemon of a GPU answers to a command of NVIDIA's program."""
    pipe = f"CUDA_MPS_PIPE_DIRECTORY={ROOT}/{uuid}/pipe"
    return environment.machine.shell(f"echo {command} | {pipe} {IN_NODE}/{PROGRAM}").strip()


@pytest.mark.timeout(2400)
def test_nvidias_daemon_serves_shares_and_is_started_again(
    environment: MachineEnvironment, case: Case
) -> None:
    """Each GPU has a daemon, a user reaches it from a pod, and one that is killed is replaced."""
    environment.kubectl("label", "node", NODE, "gpushare/isolation=mps", "--overwrite")
    until("all GPUs have mode mps", lambda: healthy_modes(environment) == ["mps"] * 2)
    pod = sharing(case, "limited", UNITS)
    pod["metadata"]["annotations"]["gpushare/isolation"] = "mps"
    pod["spec"]["securityContext"] = {"runAsUser": USER, "runAsGroup": USER}
    case.create_running(pod)
    gpu = environment.nodes[NODE][case.gpu("limited")]
    env = case.env("limited")
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(100 * UNITS // gpu.units)
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={UNITS * 1024}M"
    connect = ("exec", "limited", "-n", case.name, "--", "python3", "-c", CONNECT)
    assert case.kubectl(*connect).strip() == str(USER)
    assert answer(environment, gpu.uuid, "get_server_list") == ""
    before, kept = daemon(environment, gpu.uuid), lives(case, "limited")
    environment.machine.shell(f"kill -9 {before}")
    until("another daemon runs", lambda: daemon(environment, gpu.uuid) not in {"", before})
    until("all GPUs have mode mps", lambda: healthy_modes(environment) == ["mps"] * 2)
    assert case.kubectl(*connect).strip() == str(USER)
    assert lives(case, "limited") == kept
    until("annotations agree with kubelet", lambda: agree(environment, case))
    fill(environment, case)
