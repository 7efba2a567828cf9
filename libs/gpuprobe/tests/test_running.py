"""The program of a container: plans, child processes, a process from outside, and the guard."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuprobe import container, guard, kernels
from gpuprobe.children import ChildProgram
from gpuprobe.names import ENDED, FOLDER, LIBRARY, NVML, OUT_OF_MEMORY, OUTSIDE, READY
from standins.cuda import build

pytestmark = pytest.mark.slow

UUID = "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"
Answers = list[dict[str, Any]]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A container on a node with one GPU of 1,024 MiB, in a pod whose limit is 512 MiB."""
    (tmp_path / "cuda").mkdir()
    (tmp_path / "state").write_text("gpu 0 memory_limit 0 536870912 /cgroup/podu-1\n")
    (tmp_path / "exchange").mkdir()
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LD_LIBRARY_PATH": str(build.ensure()),
        "FAKECUDA_ROOT": str(tmp_path),
        "FAKECUDA_POD": "u-1",
        "FAKECUDA_MIB": "1024",
        "FAKECUDA_CONTEXT_MIB": "16",
        "FAKECUDA_GPU_0": UUID,
        FOLDER: str(tmp_path / "exchange"),
    }


def run(env: dict[str, str], *steps: dict[str, Any], to: str = "") -> Answers:
    """The answers to a plan."""
    argv = [sys.executable, "-m", "gpuprobe", json.dumps(steps), *([to] if to else [])]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


EXHAUST = {"do": "exhaust", "step_mib": 128, "most_mib": 1024}


def test_a_plan_answers_each_step_and_goes_on_after_a_refusal(env: dict[str, str]) -> None:
    """Each answer has the name of its step and the times of its begin and end."""
    found = run(env, {"do": "fill", "mib": 900}, {"do": "fill", "mib": 4})
    assert [each["do"] for each in found] == ["fill", "fill"]
    assert found[0]["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert found[1]["ok"] == {"held_mib": 4}
    assert found[0]["from"] <= found[0]["to"] <= found[1]["from"]


def test_a_plan_ends_in_a_container_with_another_gpu(env: dict[str, str]) -> None:
    """What follows may crash those that use the GPU; with the expected one it goes on."""
    steps = ({"do": "expect", "uuid": UUID}, {"do": "fill", "mib": 4})
    expected, held = run(env, *steps)
    assert (expected["ok"], held["ok"]) == ({}, {"held_mib": 4})
    other = UUID.replace("84bc", "95cd")
    (found,) = run(env | {"FAKECUDA_GPU_0": other}, *steps)
    assert found["error"]["name"] == f"{other}, not {UUID}"
    (none,) = run(env | {"FAKECUDA_NONE": "1"}, *steps)
    assert none["error"]["name"] == "CUDA_ERROR_NO_DEVICE"


def test_a_process_leaves_what_it_is_told_to_leave(env: dict[str, str]) -> None:
    """Where no limit holds, memory that is free may be needed by others at once."""
    (found,) = run(env, EXHAUST | {"spare_mib": 100})
    assert found["ok"] == {"held_mib": 512 - 100, "refusal": ""}


def test_a_refusal_has_what_is_free_of_the_whole_gpu(env: dict[str, str], tmp_path: Path) -> None:
    """Only where the container has NVML: at the limit of the pod half of the GPU is free."""
    (without,) = run(env, EXHAUST)
    assert "gpu_free_mib" not in without["ok"]
    (tmp_path / NVML).symlink_to(build.ensure() / LIBRARY)
    with_nvml = env | {"LD_LIBRARY_PATH": f"{env['LD_LIBRARY_PATH']}:{tmp_path}"}
    (found,) = run(with_nvml, EXHAUST)
    assert found["ok"]["gpu_free_mib"] == 512


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_children_hold_memory_until_they_leave(how: str, env: dict[str, str]) -> None:
    """Their contexts and memory count for the limit of the pod."""
    child = {"do": "child", "how": how, "steps": [EXHAUST]}
    half = {**child, "name": "half", "steps": [{**EXHAUST, "most_mib": 256}]}
    leave = {"do": "leave", "name": "half"}
    found = run(env, half, {**child, "name": "rest", "how": "exec"}, leave, {"do": "describe"})
    held = [each["ok"]["answers"][1]["ok"]["held_mib"] for each in found[:2]]
    assert held == [256, 512 - 256 - 2 * 16]
    assert found[3]["ok"]["uuid"] == UUID


def test_a_child_without_memory_for_its_context_reports_it(env: dict[str, str]) -> None:
    """It is an answer of the child, and no end of the plan."""
    all_of_it = {"do": "child", "name": "a", "steps": [EXHAUST]}
    found = run(env, all_of_it, {"do": "child", "name": "b", "steps": [EXHAUST]})
    (answer,) = found[1]["ok"]["answers"]
    assert answer["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"


def test_a_child_is_killed_in_the_middle_of_its_work(env: dict[str, str]) -> None:
    """Its memory is free afterwards."""
    burn = {"do": "compute", "blocks": 1, "rounds": 1, "launches": 1, "seconds": 60}
    fill = {"do": "fill", "mib": 400}
    doomed = {"do": "child", "name": "a", "steps": [fill], "kill": json.dumps(burn)}
    found = run(env, doomed, {"do": "fill", "mib": 400})
    assert found[0]["ok"]["answers"][-1] == {"ended": ENDED}
    assert found[1]["ok"] == {"held_mib": 400}


def test_a_child_that_ended_by_itself_is_killed_without_an_error() -> None:
    """One without a GPU ends at once: its own answer says why, and must not be lost."""
    argv = [sys.executable, "-c", "print('{\"error\": {}}')"]
    ended = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert ended.stdin is not None
    assert ended.stdout is not None
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    child = ChildProgram(ended.pid, ended.stdin, ended.stdout)
    child.kill_during({"do": "describe"})
    assert child.finish() == {"error": {}}
    child.end()
    ended.returncode = 0  # it has been waited for by its id


def test_a_process_from_outside_answers_through_the_container(env: dict[str, str]) -> None:
    """It begins when the container is ready, and counts for the same limit."""
    outside = threading.Thread(target=run, args=(env, EXHAUST), kwargs={"to": OUTSIDE})
    outside.start()
    child = {"do": "child", "name": "a", "steps": [{**EXHAUST, "most_mib": 256}]}
    found = run(env, child, {"do": "outside"})
    outside.join(60)
    assert (Path(env[FOLDER]) / READY).exists()
    (answer,) = found[1]["ok"]["answers"]
    assert answer["ok"]["held_mib"] == 512 - 256 - 2 * 16


def test_a_neighbour_reports_its_work_again_and_again(env: dict[str, str]) -> None:
    """After the size of its work each report has requests, and whether its memory is as it was."""
    watch = {"do": "watch", "seconds": 1.2, "blocks": 1, "milliseconds": 0.1, "mib": 8}
    size, *found = run(env, watch)
    assert size["ok"]["rounds"] > 0
    assert len(found) >= 2
    assert all(each["do"] == "stint" and each["ok"]["intact"] for each in found)
    assert all(each["ok"]["requests"] for each in found)


def test_the_second_of_two_does_work_of_the_size_of_the_first(env: dict[str, str]) -> None:
    """Beside another that works it cannot settle a size: the time would have turns in it."""
    watch = {"do": "watch", "seconds": 0.1, "blocks": 2, "milliseconds": 0.1, "mib": 8}
    size, *found = run(env, watch | {"rounds": 7})
    assert size["ok"]["rounds"] == 7
    each = 20 * kernels.operations(blocks=2, rounds=7)
    assert [one["ok"]["operations"] for one in found] == [
        each * one["ok"]["requests"] for one in found
    ]


def test_a_copy_that_is_refused_keeps_no_memory(env: dict[str, str]) -> None:
    """The first of its two pieces is given back where the second is refused."""
    found = run(env, {"do": "copy", "mib": 300, "seconds": 0.05}, {"do": "fill", "mib": 400})
    assert found[0]["error"]["name"] == OUT_OF_MEMORY
    assert found[1]["ok"] == {"held_mib": 400}


def test_two_gpus_copy_to_each_other(env: dict[str, str]) -> None:
    """The rate counts the bytes of all copies."""
    both = env | {"FAKECUDA_GPU_1": UUID.replace("84", "85")}
    (answer,) = run(both, {"do": "peers", "mib": 8, "seconds": 0.05})
    assert answer["ok"]["direct"] is True
    assert answer["ok"]["bytes"] == answer["ok"]["requests"] * 8 * 1024 * 1024


def test_a_container_reports_its_variables_of_gpus_only() -> None:
    """Nothing that could be a secret of others."""
    env = {"NVIDIA_VISIBLE_DEVICES": "a", "ALIYUN_COM_GPU_MEM_IDX": "1", "TOKEN": "x"}
    found = container.described(env)["variables"]
    assert found == {"NVIDIA_VISIBLE_DEVICES": "a", "ALIYUN_COM_GPU_MEM_IDX": "1"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 1", "535.161.08"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  615.10  Release", "615.10"),
        ("", ""),
    ],
)
def test_the_version_of_the_driver_is_read(text: str, version: str) -> None:
    """As the kernel modules of both kinds write it."""
    assert container.driver_version(text) == version


SERVER_TIME = 1_000_000.0


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, str]]]:
    """Method, path and credentials of what the API server was sent; its clock is SERVER_TIME."""
    seen: list[tuple[str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            seen.append((self.command, self.path, self.headers["Authorization"]))
            self.send_response(200 if self.command == "DELETE" else 403)
            self.end_headers()

        do_GET = do_DELETE = _respond  # noqa: N815 - names of the library

        def date_time_string(self, _: float | None = None) -> str:
            return formatdate(SERVER_TIME, usegmt=True)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(guard, "api_server", lambda: f"http://127.0.0.1:{server.server_port}")
        yield seen
        server.shutdown()
        thread.join(60)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the guard's waits, which take no time but on its clock."""
    found: list[float] = []
    monkeypatch.setattr("gpuprobe.guard.time.monotonic", lambda: sum(found))
    monkeypatch.setattr("gpuprobe.guard.time.sleep", found.append)
    return found


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service account of the guard."""
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr(guard, "ACCOUNT", tmp_path)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("until", "waited"), [(SERVER_TIME + 900, 900), (SERVER_TIME + 10, 10), (SERVER_TIME - 20, 0)]
)
def test_the_guard_deletes_its_namespace_at_a_time_of_the_api_server(
    until: float, waited: float, requests: list[tuple[str, str, str]], slept: list[float]
) -> None:
    """Whatever the clock of its node is, and also where it starts again in the middle."""
    assert guard.main(["930", "gpushare-verify-1", f"{until:.0f}"]) == 0
    assert sum(slept) == waited
    path = "/api/v1/namespaces/gpushare-verify-1"
    assert requests == [("GET", "/version", "Bearer secret"), ("DELETE", path, "Bearer secret")]


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("until", ["1e12", ""])
def test_a_guard_waits_no_longer_than_its_run(
    until: str, requests: list[tuple[str, str, str]], slept: list[float]
) -> None:
    """Also where no time is known."""
    assert guard.main(["930", "gpushare-verify-1", until]) == 0
    assert sum(slept) == 930
    assert requests[-1][0] == "DELETE"


@pytest.mark.usefixtures("account")
def test_a_guard_that_the_api_server_does_not_answer_waits_for_its_time(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again, and then ends with the error, so that its Job starts it again."""
    monkeypatch.setattr(guard, "api_server", lambda: "http://127.0.0.1:1")
    with pytest.raises(OSError, match="refused"):
        guard.main(["930", "gpushare-verify-1", str(SERVER_TIME)])
    assert sum(slept) == 930


def test_a_guard_without_a_namespace_only_waits(slept: list[float]) -> None:
    """The end of its Job removes the pods that it owns."""
    assert guard.main(["60", "", ""]) == 0
    assert slept == [60]


def test_lines_are_complete_at_once() -> None:
    """A reader of the log sees no half of an answer that is done."""
    from gpuprobe.running import say  # noqa: PLC0415 - one test

    text = io.StringIO()
    say({"ok": {}}, text)
    assert text.getvalue() == '{"ok": {}}\n'
