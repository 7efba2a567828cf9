"""Only evidence about the GPU, from pods of several namespaces, withdraws a GPU."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.node.health.breaker import HOLD_SECONDS, WINDOW_SECONDS, Breaker
from gpucore.node.health.container_starts import Start, start_of
from gpucore.node.health.records import HealthRecords
from gpucore.units import GpuIndex

GPU = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
OTHER = "GPU-00000000-483b-b48f-d7e5-75fb19a52b76"
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: "
)
HOOK = f"{RUNC}error during container init: error running hook #0: error running hook: "
HOOK += "exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: "
CDI = "failed to create containerd container: CDI device injection failed: "

PROGRAM_FAULTS = [
    "",
    f'{RUNC}exec: "/no-such-program": stat /no-such-program: no such file or directory: unknown',
    f'{RUNC}exec: "python": executable file not found in $PATH: unknown',
    f'{RUNC}chdir to cwd ("/srv") set in config.json failed: no such file or directory: unknown',
    'failed to prepare subPath for volumeMount "data" of container "main"',
    'failed to generate container "3f" spec: failed to apply OCI options: no command specified',
    f"{HOOK}requirement error: unsatisfied condition: cuda>=99.0, please update your driver",
    f"{HOOK}mount error: file creation failed: /usr/bin/nvidia-smi: file exists: unknown",
    f"{HOOK}device error: all-of-them: unknown device: unknown",
    f"{HOOK}device error: {OTHER}: unknown device: unknown",
    f"{CDI}unresolvable CDI devices example.com/gpu=nothing",
]
IMITATION = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
DOCKER = 'failed to start container "main": Error response from daemon: '
OLD_HOOK_START = (
    "OCI runtime create failed: container_linux.go:380: starting container process caused: "
    "process_linux.go:545: container init caused: Running hook #1:: error running hook: exit "
    "status 1, stdout: , stderr: "
)
HOOK_START = f"{RUNC}error during container init: error running prestart hook #0: exit status 1, "
HOOK_START += "stdout: , stderr: "
APPARMOR = (
    "failed to get container spec opts: failed to generate apparmor spec opts: "
    "apparmor profile not found "
)
CDI_RUNTIME = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "could not apply required modification to OCI specification: error modifying OCI spec: "
    "failed to inject CDI devices: "
)
NO_FILE = 'error gathering device information while adding custom device "/dev/nvidia0": '
# What tenants write without quotation marks around it: profile, workingDir, environment.
UNQUOTED = [
    *(
        f"{APPARMOR}{profile}"
        for profile in (
            IMITATION,
            f"{HOOK}initialization error: x",
            f"{CDI}unresolvable CDI devices nvidia.com/gpu={GPU}",
            f"{NO_FILE}no such file or directory",
        )
    ),
    f"{RUNC}error during container init: mkdir /proc/{IMITATION}: no such file or directory",
    f"{RUNC}error during container init: mkdir /proc/{HOOK}detection error: x: no such file",
    f"{RUNC}error during container init: mkdir /proc/{NO_FILE}: no such file or directory",
    f"{HOOK_START}unsupported capabilities found in '{IMITATION}' (allowed 'compute,utility')",
    f"{HOOK_START}unsupported capabilities found in 'x\n{IMITATION}' (allowed 'compute,utility')",
    f"{CDI_RUNTIME}unresolvable CDI devices nvidia.com/gpu={GPU}: unknown",
]
FORGED = [
    f'{RUNC}exec: "{IMITATION}": stat {IMITATION}: no such file or directory: unknown',
    f'failed to prepare subPath for volumeMount "{IMITATION}" of container "main"',
    f"{HOOK}device error: x: {GPU}: unknown device: unknown",
    f"{HOOK}device error: x\nnvidia-container-cli: initialization error: y: unknown device",
    *UNQUOTED,
]
START_FAULTS = [
    f"{HOOK}initialization error: nvml error: driver not loaded: unknown",
    f"{HOOK}initialization error: driver rpc error: timed out: unknown",
    f"{HOOK}detection error: nvml error: unknown error: unknown",
    f"{HOOK}device error: {GPU}: unknown device: unknown",
    f"{DOCKER}{HOOK}initialization error: x",
    f"{HOOK_START}{IMITATION}: unknown",
    f"{HOOK_START}Using requested mode 'legacy'\n{IMITATION}: unknown",
    f"{OLD_HOOK_START}{IMITATION}: unknown",
    f"{NO_FILE}no such file or directory",
    f"linux runtime spec devices: {NO_FILE}lstat /dev/nvidia0: no such file or directory",
]
CDI_FAULTS = [
    f"{CDI}unresolvable CDI devices nvidia.com/gpu={GPU}",
    f"{DOCKER}CDI device injection failed: unresolvable CDI devices nvidia.com/gpu={GPU}",
]
GPU_FAULTS = START_FAULTS + CDI_FAULTS
STARTS = ["RunContainerError", "StartError", "ContainerCannotRun"]
REASONS = [*STARTS, "CreateContainerError"]


def line(reason: str, message: str, *, last: bool = False) -> bytes:
    """One line of a watch: the only container of a pod has failed to start."""
    failed = {"terminated": {"reason": reason, "message": message}}
    waiting = {"waiting": {"reason": reason, "message": message}}
    status = {"lastState": failed} if last else {"state": waiting}
    return json.dumps({"object": {"status": {"containerStatuses": [status]}}}).encode()


@pytest.mark.parametrize("message", PROGRAM_FAULTS + FORGED)
@pytest.mark.parametrize("reason", REASONS)
def test_a_fault_of_the_program_leaves_the_gpu_healthy(reason: str, message: str) -> None:
    """Wrong command, missing subPath, bad environment, or a command that imitates the hook."""
    assert start_of(line(reason, message), [GPU]) is Start.UNDECIDED
    assert start_of(line(reason, message, last=True), [GPU]) is Start.UNDECIDED


@pytest.mark.parametrize("message", GPU_FAULTS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("reason", STARTS)
def test_the_nvidia_hook_names_a_fault_of_the_gpu(message: str, last: bool, reason: str) -> None:
    """The container runtime could not reach the driver or the GPU that the plugin gave."""
    assert start_of(line(reason, message, last=last), [GPU]) is Start.FAILED


@pytest.mark.parametrize("message", START_FAULTS)
def test_the_hook_runs_when_a_container_starts(message: str) -> None:
    """No runtime runs it when a container is created: such a message is somebody else's text."""
    assert start_of(line("CreateContainerError", message), [GPU]) is Start.UNDECIDED


def test_containerd_finds_no_cdi_device_when_it_creates_a_container() -> None:
    """The vendor's CDI file has no device for the GPU that the plugin gave."""
    assert start_of(line("CreateContainerError", CDI_FAULTS[0]), [GPU]) is Start.FAILED


def test_a_program_cannot_write_the_evidence_itself() -> None:
    """The termination message of a program that ran is the program's own text."""
    assert start_of(line("Error", GPU_FAULTS[0], last=True), [GPU]) is Start.UNDECIDED


class Node:
    """One GPU with its breaker and its health record."""

    def __init__(self, limit: int = 5) -> None:
        self.breaker = Breaker(limit=limit)
        self.book = HealthRecords(clean_probes=3, ignored_xids=())
        self.book.watch_only([GPU])

    def pod(self, namespace: str, uid: str, message: str, now: float) -> bool:
        """A pod's status arrives; true when the GPU is healthy afterwards."""
        if start_of(line("RunContainerError", message), [GPU]) is Start.FAILED:
            for _ in self.breaker.failed([GpuIndex(0)], uid, namespace, now):
                self.book.bad(GPU, "pods fail to start on it", now, hold=HOLD_SECONDS)
        return self.book.healthy(GPU)


steps = st.floats(0, 2 * WINDOW_SECONDS)
messages = st.sampled_from(PROGRAM_FAULTS + FORGED) | st.text()


@pytest.mark.slow
@given(st.lists(st.tuples(steps, st.integers(), messages), max_size=60), st.integers(1, 5))
def test_pods_of_one_namespace_without_evidence_never_change_the_health(
    failures: list[tuple[float, int, str]], limit: int
) -> None:
    """Whatever sequence of failures one namespace makes, the GPU stays healthy."""
    node, now = Node(limit), 0.0
    for pause, uid, message in failures:
        now += pause
        assert node.pod("tenant", f"uid-{uid}", message, now)


@given(st.lists(st.tuples(steps, st.integers(), st.sampled_from(GPU_FAULTS)), max_size=60))
def test_one_namespace_alone_never_changes_the_health(
    failures: list[tuple[float, int, str]],
) -> None:
    """A namespace is all a tenant has for certain: even real evidence needs a second one."""
    node, now = Node(limit=1), 0.0
    for pause, uid, message in failures:
        now += pause
        assert node.pod("tenant", f"uid-{uid}", message, now)


def test_evidence_from_two_namespaces_withdraws_the_gpu() -> None:
    """Five pods of two namespaces report that the hook cannot reach the GPU."""
    node = Node(limit=5)
    healthy = [node.pod(f"team-{n % 2}", f"uid-{n}", GPU_FAULTS[0], float(n)) for n in range(5)]
    assert healthy == [True] * 4 + [False]


def test_a_namespace_counts_no_more_often_than_the_limit() -> None:
    """A tenant that fails a thousand times takes no memory for it."""
    breaker = Breaker(limit=3)
    for number in range(1000):
        assert breaker.failed([GpuIndex(0)], f"uid-{number}", "tenant", 1.0) == []
    assert sum(map(len, breaker._failures.values())) == 3
