"""Isolation by MPS on a node: its label, limits in containers, dead daemons, over-use."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from environments import podresources
from environments.case import Case
from environments.environment import MachineGpu
from environments.kind import KindEnvironment
from environments.podprocesses import first_pid
from environments.waiting import until

pytestmark = pytest.mark.e2e

LABEL = "gpushare/isolation"
GPU_MEM = "aliyun.com/gpu-mem"
ROOT = "/run/gpushare/mps"
PID_FILE = "standin.pid"
USER = 1000
CLIENT = """
import os, socket
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
peer.send(b"client")
open("/dev/shm/probe", "w").close()
os.unlink("/dev/shm/probe")
print(os.getuid(), peer.recv(100).decode())
"""


def gpus(environment: KindEnvironment, node: str) -> list[dict[str, Any]]:
    """The node's GPUs as it publishes them."""
    annotations = environment.objects.node(node)["metadata"]["annotations"]
    found: list[dict[str, Any]] = json.loads(annotations["gpushare/inventory"])["gpus"]
    return found


def published(environment: KindEnvironment, node: str, mode: str) -> bool:
    """All GPUs are healthy and have this mode."""
    return all(gpu["healthy"] and gpu["mode"] == mode for gpu in gpus(environment, node))


def offered(environment: KindEnvironment, node: str) -> int:
    """Units the node offers to schedulers."""
    status = environment.objects.node(node)["status"]
    return int(status["allocatable"].get(GPU_MEM, "0"))


def about_gpu(environment: KindEnvironment, reason: str, about: str, gpu: MachineGpu) -> list[str]:
    """Messages of events of one reason about an object, that name a GPU."""
    found = environment.objects.events(fields=f"reason={reason}")
    return [
        each["message"]
        for each in found
        if each["involvedObject"].get("name") == about and gpu.uuid in each["message"]
    ]


@pytest.fixture(scope="module")
def isolated(environment: KindEnvironment, small: str) -> Iterator[str]:
    """The small node with isolation by MPS; without it again afterwards."""
    environment.kubectl("label", "node", small, f"{LABEL}=mps", "--overwrite")
    try:
        until("all GPUs have mode mps", lambda: published(environment, small, "mps"))
        whole = sum(gpu.units for gpu in environment.nodes[small])
        until("kubelet offers them", lambda: podresources.allocatable(environment, small) == whole)
        yield small
    finally:
        environment.kubectl("label", "node", small, f"{LABEL}-")
        until("all GPUs have mode none", lambda: published(environment, small, "none"))


@pytest.fixture
def first(environment: KindEnvironment, isolated: str) -> Iterator[MachineGpu]:
    """A GPU of that node; whatever is done to its daemon or to its processes is undone."""
    gpu = environment.nodes[isolated][0]
    yield gpu
    environment.on_node(isolated, f"rm -f {ROOT}/{gpu.uuid}/faults")
    environment.break_gpus(isolated)
    whole = sum(each.units for each in environment.nodes[isolated])
    until("all units are offered", lambda: offered(environment, isolated) == whole)


def on(gpu: MachineGpu, pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, demanding MPS and running as an ordinary user, on the emptiest GPU of its node."""
    pod["metadata"]["annotations"] = {LABEL: "mps", "gpushare/policy": "binpack"}
    pod["spec"]["securityContext"] = {"runAsUser": USER, "runAsGroup": USER}
    assert gpu.index == 0, "an empty node is packed from GPU 0 on"
    return pod


def test_a_share_is_limited_and_reaches_its_daemon_as_any_user(
    environment: KindEnvironment, case: Case, isolated: str, first: MachineGpu
) -> None:
    """Threads and memory follow the share, and an unprivileged client gets through to a server."""
    case.create_running(on(first, case.pod("limited", 3, node=isolated)))
    env = case.env("limited")
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(100 * 3 // first.units)
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={3 * 1024}M"
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == f"{ROOT}/{first.uuid}/pipe"
    message = case.kubectl("exec", "limited", "-n", case.name, "--", "python3", "-c", CLIENT)
    user, word, server = message.split()
    assert (int(user), word) == (USER, "server")
    owner = environment.on_node(isolated, f"stat -c %u /proc/{server} || true")
    assert owner.strip() in {str(USER), ""}, "a server runs as the user of its clients"


def test_a_dead_daemon_withdraws_its_gpu_until_it_is_back(
    environment: KindEnvironment, case: Case, isolated: str, first: MachineGpu
) -> None:
    """Node and pod get events, the other GPU keeps working, and the new daemon restores the GPU."""
    case.create_running(on(first, case.pod("struck", 2, node=isolated)))
    whole = offered(environment, isolated)
    folder = f"{ROOT}/{first.uuid}"
    environment.on_node(
        isolated, f"echo crash > {folder}/faults; kill -9 $(cat {folder}/{PID_FILE})"
    )
    until("the GPU is withdrawn", lambda: offered(environment, isolated) == whole - first.units)
    for about in (isolated, "struck"):
        until(
            f"{about} has an event",
            partial(about_gpu, environment, "MpsDaemonFailed", about, first),
        )
    environment.on_node(isolated, f"rm {folder}/faults")
    until("the GPU is offered again", lambda: offered(environment, isolated) == whole)
    until(
        "the node has an event that it is back",
        partial(about_gpu, environment, "MpsDaemonServes", isolated, first),
    )


def test_a_pod_that_uses_more_than_its_share_is_notified(
    environment: KindEnvironment, case: Case, isolated: str, first: MachineGpu
) -> None:
    """The driver reports a process with too much memory: an event on its pod, and nothing else."""
    case.create_running(on(first, case.pod("greedy", 2, node=isolated)))
    pid = first_pid(environment, case, "greedy")
    environment.break_gpus(isolated, f"gpu 0 process pid {pid} used_mib 4096 name greedy")
    (message,) = until(
        "the pod has an event about its over-use",
        lambda: case.events("GpuMemoryOverused", "greedy"),
    )
    assert message == "uses 4096 MiB of GPU 0, but its share is 2048"
    assert case.ready("greedy"), "it gets an event and is not ended"
