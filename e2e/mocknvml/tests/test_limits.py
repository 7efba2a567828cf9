"""Memory limits per cgroup: what is set is in force for every process, and old drivers lack it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mocknvml import build
from mocknvml.tests.conftest import Start
from mocknvml.tests.nvml_process import Handle, NvmlProcess

pytestmark = pytest.mark.slow

SET, GET = "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"
NO_LIMIT = (1 << 64) - 1
GIB = 1 << 30
NEW = "h100-r615-2x80"


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    """A directory that stands for a cgroup."""
    made = tmp_path / "kubepods" / "pod1"
    made.mkdir(parents=True)
    return made


def request(cgroup: Path | str, **limits: int) -> dict[str, Any]:
    fields = {"nameSpace": str(cgroup), **limits}
    return {"struct": "c_nvmlSetMemoryLimits_v1_t", "fields": fields}


def question(cgroup: Path | str) -> dict[str, Any]:
    return {"struct": "c_nvmlGetMemoryLimits_v1_t", "fields": {"nameSpace": str(cgroup)}}


def limit(worker: NvmlProcess, gpu: Handle, cgroup: Path, soft: int, hard: int) -> None:
    worker.call(SET, gpu, request(cgroup, softLimit=soft, hardLimit=hard))


def in_force(worker: NvmlProcess, gpu: Handle, cgroup: Path) -> tuple[int, int, int]:
    """Soft and hard limit and the bytes in use."""
    found = worker.fill(GET, gpu, question(cgroup))
    return found["softLimit"], found["hardLimit"], found["currentUsed"]


def test_a_cgroup_without_a_limit_answers_no_limit(nvml: Start, cgroup: Path) -> None:
    """Soft 0 and the largest number, and nothing is in use."""
    worker = nvml(NEW)
    assert in_force(worker, worker.gpus()[0], cgroup) == (0, NO_LIMIT, 0)


def test_a_limit_holds_for_one_gpu_and_one_cgroup(nvml: Start, cgroup: Path) -> None:
    """Other GPUs and other cgroups keep theirs; the last setting counts."""
    worker = nvml(NEW)
    first, second = worker.gpus()
    other = cgroup.with_name("pod2")
    other.mkdir()
    limit(worker, first, cgroup, GIB, 2 * GIB)
    limit(worker, first, other, 0, 5)
    limit(worker, first, other, 3, 7)
    assert in_force(worker, first, cgroup) == (GIB, 2 * GIB, 0)
    assert in_force(worker, first, other) == (3, 7, 0)
    assert in_force(worker, second, cgroup) == (0, NO_LIMIT, 0)


def test_a_limit_is_seen_by_other_processes_and_outlives_its_setter(
    nvml: Start, cgroup: Path
) -> None:
    """It is in the state file, as a driver keeps it with the cgroup."""
    worker = nvml(NEW)
    limit(worker, worker.gpus()[0], cgroup, GIB, GIB)
    worker.close()
    assert worker.state.read_text() == f"gpu 0 memory_limit {GIB} {GIB} {cgroup}\n"
    later = nvml(NEW, state=worker.state.read_text())
    assert in_force(later, later.gpus()[0], cgroup) == (GIB, GIB, 0)


def test_somebody_else_changes_a_limit_and_uses_memory(nvml: Start, cgroup: Path) -> None:
    """A line of the state file is the driver's truth at the next call."""
    worker = nvml(NEW)
    gpu = worker.gpus()[0]
    limit(worker, gpu, cgroup, GIB, GIB)
    worker.append(f"gpu 0 memory_used {GIB // 2} {cgroup}")
    assert in_force(worker, gpu, cgroup) == (GIB, GIB, GIB // 2)
    worker.append(f"gpu 0 memory_limit 0 {NO_LIMIT} {cgroup}")
    assert in_force(worker, gpu, cgroup) == (0, NO_LIMIT, GIB // 2)


def test_an_ended_limit_leaves_room_in_the_ledger(nvml: Start, cgroup: Path) -> None:
    """More pods than the ledger has entries come and go."""
    gone = [f"gpu 0 memory_limit 1 {hard} {cgroup}{n}" for n in range(600) for hard in (1,)]
    back = [f"gpu 0 memory_limit 0 {NO_LIMIT} {cgroup}{n}" for n in range(600)]
    lines = [line for pair in zip(gone, back, strict=True) for line in pair]
    worker = nvml(NEW, state="\n".join([*lines, f"gpu 1 memory_limit 4 5 {cgroup}"]) + "\n")
    assert in_force(worker, worker.gpus()[1], cgroup) == (4, 5, 0)


@pytest.mark.parametrize("call", [SET, GET])
def test_a_driver_before_615_lacks_both_calls(nvml: Start, cgroup: Path, call: str) -> None:
    """As a missing symbol of its library does, the call fails and finds no function."""
    worker = nvml("a100-pcie-4x40")
    argument = request(cgroup, hardLimit=1) if call == SET else question(cgroup)
    assert worker.failure(call, worker.gpus()[0], argument) == "NVMLError_FunctionNotFound"


@pytest.mark.parametrize("call", [SET, GET])
def test_a_driver_may_have_the_calls_and_no_back_end(nvml: Start, cgroup: Path, call: str) -> None:
    """`unsupported` in the machine file answers as a node without cgroup v2 does."""
    text = (
        build.machine(NEW).read_text().replace("[driver]", f"[driver]\nunsupported = {SET} {GET}")
    )
    worker = nvml(text=text)
    argument = request(cgroup, hardLimit=1) if call == SET else question(cgroup)
    assert worker.failure(call, worker.gpus()[0], argument) == "NVMLError_NotSupported"


def test_a_gpu_in_mig_mode_has_no_limits(nvml: Start, cgroup: Path) -> None:
    """GPU 0 is cut; the whole GPU beside it has limits."""
    text = build.machine("a100-mig-2x40").read_text()
    version = next(line for line in text.splitlines() if line.startswith("version"))
    worker = nvml(text=text.replace(version, "version = 615.36.01"))
    cut, whole = worker.gpus()
    assert worker.failure(GET, cut, question(cgroup)) == "NVMLError_NotSupported"
    assert in_force(worker, whole, cgroup) == (0, NO_LIMIT, 0)


@pytest.mark.parametrize("path", ["", "relative/path", "/nowhere/at/all"])
def test_a_path_that_is_no_cgroup_is_refused(nvml: Start, path: str) -> None:
    """The path of another node's pod, or of one that has ended."""
    worker = nvml(NEW)
    gpu = worker.gpus()[0]
    assert worker.failure(GET, gpu, question(path)) == "NVMLError_InvalidArgument"
    refusal = worker.failure(SET, gpu, request(path, softLimit=1, hardLimit=1))
    assert refusal == "NVMLError_InvalidArgument"


def test_a_soft_limit_above_the_hard_one_is_refused(nvml: Start, cgroup: Path) -> None:
    """Nothing is set."""
    worker = nvml(NEW)
    gpu = worker.gpus()[0]
    refusal = worker.failure(SET, gpu, request(cgroup, softLimit=2, hardLimit=1))
    assert refusal == "NVMLError_InvalidArgument"
    assert in_force(worker, gpu, cgroup) == (0, NO_LIMIT, 0)


def test_a_lost_gpu_answers_nothing(nvml: Start, cgroup: Path) -> None:
    """As with every call about it."""
    worker = nvml(NEW)
    gpu = worker.gpus()[0]
    worker.append("gpu 0 lost")
    assert worker.failure(GET, gpu, question(cgroup)) == "NVMLError_GpuIsLost"


@pytest.mark.parametrize(
    "words", ["memory_limit 1 /a", "memory_limit 1 x /a", "memory_used /a", "memory_limit 1 2 a"]
)
def test_a_wrong_line_of_the_ledger_is_reported(start: Start, words: str) -> None:
    """Initialization fails, and the message names the line."""
    worker = start(NEW, state=f"gpu 0 {words}\n")
    assert worker.failure("nvmlInit") == "NVMLError_Unknown"
    assert "memory_limit SOFT HARD CGROUP" in worker.close()


ALLOCATE = Path(__file__).parents[2] / "standins" / "allocator" / "allocate.py"


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs the stand-in for a CUDA program of a pod on GPU 0, and gives its lines."""
    text = ALLOCATE.read_text().replace(
        "/machine/nvml/libnvidia-ml.so.1", str(build.ensure() / build.LIBRARY)
    )
    uid = "6f3c1a90-2b4d-4e8f-9a01-c2d3e4f5a6b7"
    (tmp_path / f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-1").mkdir(
        parents=True
    )
    environment = {
        "CGROUP_ROOT": str(tmp_path),
        "POD_UID": uid,
        "GPUSHARE_MOCK_NVML_MACHINE": str(build.machine(NEW)),
        "GPUSHARE_MOCK_NVML_STATE": str(tmp_path / "state"),
    }
    shown = build.machine(NEW).read_text()
    environment["NVIDIA_VISIBLE_DEVICES"] = next(
        line.split("=")[1].strip() for line in shown.splitlines() if line.startswith("uuid")
    )

    def run(*amounts: int, state: str = "") -> list[str]:
        slice_of = tmp_path / f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"
        (tmp_path / "state").write_text(state.format(cgroup=slice_of))
        command = [sys.executable, "-c", text, *map(str, amounts)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    return run


def test_an_allocation_beyond_the_limit_is_out_of_memory(
    program: Callable[..., list[str]],
) -> None:
    """What was allocated before counts, and a cgroup without a limit has the GPU."""
    limit = "gpu 0 memory_limit 1073741824 2147483648 {cgroup}\n"
    assert program(3000, 1024, 1024, 1, state=limit) == [
        "3000 out of memory",
        "1024 allocated",
        "1024 allocated",
        "1 out of memory",
    ]
    assert program(9000, 90000) == ["9000 allocated", "90000 out of memory"]
