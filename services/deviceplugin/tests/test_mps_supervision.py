"""One MPS daemon under supervision: it crashes, hangs, leaves things behind, and ends cleanly."""

import asyncio
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from mpsstage import CURT, PROGRAM, QUICK, SECONDS, UUID, leftover, mps_stage

from gpucore.node.isolation.mps_grant import MpsPlace
from gpudeviceplugin.isolation.mps import supervisor
from gpudeviceplugin.isolation.mps.daemon import Daemon
from gpudeviceplugin.isolation.mps.errors import ControlError, FolderError
from gpudeviceplugin.isolation.mps.fleet import Fleet
from gpudeviceplugin.isolation.mps.folders import (
    LOG_BYTES,
    Folders,
    clear,
    held,
    lay_out,
    prepare,
    trim_logs,
)
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import Timing, pause_after

pytestmark = pytest.mark.slow

NOBODY = 65534
CLIENT = """
import socket, sys
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(sys.argv[1] + "/control")
peer.send(b"client")
print(peer.recv(100).decode(), end="", flush=True)
sys.stdin.read()
"""


def alive(pid: int | str) -> bool:
    return Path(f"/proc/{pid}").exists()


def environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def owner(pid: str) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_daemon_is_started_for_its_gpu_and_ends_cleanly() -> None:
    """It sees one GPU, by uuid; after the end no process and no socket is left."""
    async with mps_stage() as stage:
        stage.run()
        await stage.serving()
        await stage.control.send(f"start_server -uid {os.getuid()}", seconds=SECONDS)
        (server,) = (await stage.control.send("get_server_list", seconds=SECONDS)).split()
        pid = stage.pid
        assert f"CUDA_VISIBLE_DEVICES={UUID}" in environment(pid)
        await stage.end()
        assert not alive(pid)
        assert not alive(server)
        assert not held(stage.folders.pipe)
        assert stage.transitions == [(MpsDaemonPhase.SERVING, "")]


class LateDaemon(Daemon):
    """Its end is reported much later than a question to it fails."""

    async def ended(self) -> str:
        """Late."""
        why = await super().ended()
        await asyncio.sleep(1)
        return why


async def test_why_a_daemon_died_is_reported_though_it_gave_no_answer_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question may fail a moment before its end is known; a signal explains more than silence."""
    monkeypatch.setattr(supervisor, "Daemon", LateDaemon)
    monkeypatch.setattr(supervisor, "NEWS_SECONDS", SECONDS)
    async with mps_stage() as stage:
        stage.run()
        await stage.serving()
        stage.kill()
        assert await stage.failure() == "its MPS daemon fails: it was killed by signal 9"


async def test_a_daemon_that_hangs_is_reported_and_replaced() -> None:
    """It lives, but gives no answer in time: it is killed, and the next one works."""
    async with mps_stage(
        timing=Timing(check=0.05, answer=2, patience=2, start=60, grace=1, first_pause=0.01)
    ) as stage:
        stage.run()
        await stage.serving()
        pid = stage.pid
        stage.faults("mute")
        assert "no response to get_server_list in 2 s" in await stage.failure()
        stage.faults()
        await stage.serving(2)
        assert not alive(pid)


async def test_a_daemon_that_cannot_start_reports_why_and_is_tried_again() -> None:
    """Its last words are in the reason; when the cause is gone, it serves."""
    async with mps_stage() as stage:
        stage.faults("crash")
        stage.run()
        why = await stage.failure()
        assert "exited with status 1: Failed to start: a fault was requested" in why
        stage.faults()
        await stage.serving()
        assert stage.supervisor.starts > 1


async def test_a_missing_program_is_a_reason_not_a_crash() -> None:
    """For example in an image without the driver's programs."""
    async with mps_stage(program="/nowhere/nvidia-cuda-mps-control") as stage:
        stage.run()
        assert "cannot run /nowhere/nvidia-cuda-mps-control" in await stage.failure()


async def test_a_place_that_cannot_be_made_is_a_reason_not_a_crash() -> None:
    """A file where the GPU's folder should be, or a file system that is read-only."""
    async with mps_stage() as stage:
        stage.folders.pipe.parent.write_text("")
        stage.run()
        assert f"cannot make {stage.folders.pipe.parent}" in await stage.failure()


async def test_a_gpu_serves_once_the_shared_memory_of_its_daemon_is_there() -> None:
    """Containers have it mounted: a place that could not be made at first is made later."""
    top = Path(tempfile.mkdtemp(prefix="mps"))
    root, serves = top / "root", asyncio.Event()
    root.touch()
    fleet = Fleet(MpsPlace(str(root)), control=str(PROGRAM), multi_user=False, timing=QUICK)

    def changed(_: str, __: MpsDaemonPhase, after: MpsDaemonPhase, ___: str) -> None:
        if after is MpsDaemonPhase.FAILED:
            root.unlink(missing_ok=True)
        else:
            serves.set()

    fleet.on_change = changed
    fleet.want([UUID])
    running = asyncio.create_task(fleet.run())
    async with asyncio.timeout(SECONDS):
        await serves.wait()
    there = stat.S_IMODE((root / "shm").stat().st_mode) if (root / "shm").exists() else 0
    running.cancel()
    await asyncio.wait({running})
    shutil.rmtree(top)
    assert there == 0o1777


async def test_a_deaf_daemon_is_killed_in_the_end() -> None:
    """It ignores quit and SIGTERM; the end still comes, and comes soon."""
    async with mps_stage(timing=CURT) as stage:
        stage.run()
        await stage.serving()
        pid = stage.pid
        stage.faults("deaf")
        async with asyncio.timeout(SECONDS):
            await stage.end()
        assert not alive(pid)


async def test_a_daemon_that_leaves_is_given_the_time_to() -> None:
    """Its answer to quit comes before its end; it was called one that stays."""
    async with mps_stage() as stage:
        stage.folders.pipe.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as theirs:
            theirs.bind(str(stage.folders.pipe / "control"))
            theirs.listen()

            class Leaving:
                async def send(self, command: str, *, seconds: float) -> str:
                    assert (command, seconds) == ("quit", SECONDS)
                    asyncio.get_running_loop().call_later(0.1, theirs.close)
                    return ""

            daemon = Daemon(["true"], UUID, stage.folders, Leaving(), grace=SECONDS)
            await daemon.start()
            assert await daemon.ended() == "it exited with status 0"


async def test_pipes_of_a_daemon_that_stays_are_never_removed() -> None:
    """Two daemons in one directory would lose each other's clients: ours waits and reports it."""
    async with mps_stage(timing=CURT) as stage, leftover(stage) as other:
        stage.faults("deaf")
        stage.run()
        assert f"another daemon uses {stage.folders.pipe}" in await stage.failure()
        assert other.returncode is None
        assert (stage.folders.pipe / "control").exists()


async def test_a_client_of_any_user_gets_through_and_can_break_nothing() -> None:
    """Modes let a container's user connect; the directory, the lock on it and logs are root's."""
    async with mps_stage() as stage:
        lay_out(stage.folders.pipe.parents[1])
        stage.run()
        await stage.serving()
        root = stage.folders.pipe.parents[1]
        assert [mode(each) for each in (root, root / UUID, stage.folders.pipe)] == [0o755] * 3
        assert (mode(stage.folders.log), mode(root / "shm")) == (0o750, 0o1777)
        user = NOBODY if os.geteuid() == 0 else os.geteuid()
        client = await asyncio.create_subprocess_exec(
            "python3", "-c", CLIENT, str(stage.folders.pipe), user=user,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert client.stdout is not None
        async with asyncio.timeout(SECONDS):
            words = (await client.stdout.readline()).decode().split()
        assert words[0] == "server"
        assert owner(words[1]) == user
        client.kill()
        await client.communicate()


async def test_a_command_has_a_deadline_and_leaves_no_process() -> None:
    """A daemon that hangs does not block its callers."""
    async with mps_stage() as stage, leftover(stage):
        stage.faults("mute")
        with pytest.raises(ControlError, match=r"no response to ps in 0\.3 s"):
            await stage.control.send("ps", seconds=0.3)


def test_pauses_grow_to_their_limit_and_are_spread() -> None:
    """GPUs that fail together are not restarted together, nor ever faster."""
    timing = Timing(first_pause=1.0, longest_pause=60.0)
    assert [pause_after(n, timing, 1.0) for n in (1, 2, 3, 7, 99)] == [1, 2, 4, 60, 60]
    assert pause_after(3, timing, 0.0) == 2


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    """With a sentence, before anything is made."""
    pipe = tmp_path / ("x" * 100) / "pipe"
    with pytest.raises(FolderError, match="too long for sockets"):
        prepare(Folders(pipe, pipe.parent / "log"))
    assert not pipe.parent.exists()


def test_what_a_dead_daemon_left_is_cleared_and_the_directory_stays(tmp_path: Path) -> None:
    """Files, folders and links go; the directory is the one that containers have mounted."""
    (tmp_path / "control_lock").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "file").touch()
    (tmp_path / "link").symlink_to("/nowhere")
    assert not held(tmp_path)
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_logs_are_kept_small(tmp_path: Path) -> None:
    """Every look at a daemon writes to its log, which lies in the node's memory."""
    small, large = tmp_path / "server.log", tmp_path / "control.log"
    small.write_text("x")
    large.write_bytes(b"x" * (LOG_BYTES + 4096))
    trim_logs(tmp_path)
    assert (small.stat().st_size, large.stat().st_size) == (1, 0)


def test_the_stand_in_is_a_program_of_that_name() -> None:
    """Supervision looks for it by name on PATH."""
    assert os.access(PROGRAM, os.X_OK)
    assert PROGRAM.name == "nvidia-cuda-mps-control"
