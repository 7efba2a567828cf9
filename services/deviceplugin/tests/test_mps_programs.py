"""One MPS daemon under supervision: NVIDIA's own program, and the stand-in with the same answers.

NVIDIA's control daemon starts and answers without a GPU; its servers do not. It is fetched from
Debian's packages; where that is impossible, its half of these tests is skipped, but with CI=true it
fails.
"""

import asyncio
import os
import signal
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from mpsstage import PROGRAM, SECONDS, UUID, answers, holder, leftover, mps_stage

import offline
from gpudeviceplugin.isolation.mps.errors import ControlError
from gpudeviceplugin.isolation.mps.folders import held, prepare
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import Timing
from host.testing.obtaining import obtained

pytestmark = pytest.mark.slow

NOBODY = 65534
SELDOM = Timing(check=300, answer=30, start=60, poll=0.01, grace=30)
"""The plugin sends nothing while the test does."""
OFTEN = Timing(check=0.01, answer=3, patience=60, start=60, poll=0.01, grace=30)
ONE_ATTEMPT = Timing(check=0.01, answer=30, patience=0, start=60, poll=5, grace=30)
"""Each check is one attempt, with five seconds for its answer, and counts as it ends."""
HANGS = Timing(check=0.05, answer=2, patience=2, start=60, grace=1, first_pause=0.01)


@pytest.fixture(params=["stand-in", "NVIDIA"])
def program(request: pytest.FixtureRequest) -> str:
    """Path of a control program."""
    real = request.param == "NVIDIA"
    return str(obtained(offline.ensure_mps_control) if real else PROGRAM)


def environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_daemon_sees_its_gpu_by_uuid_and_ends_cleanly(program: str) -> None:
    """After the end no process is left, and nobody holds the pipes."""
    async with mps_stage(program=program) as stage:
        stage.run()
        await stage.serving()
        pid = stage.pid
        assert f"CUDA_VISIBLE_DEVICES={UUID}" in environment(pid)
        assert held(stage.folders.pipe)
        await stage.end()
        assert not alive(pid)
        assert not held(stage.folders.pipe)
        assert stage.transitions == [(MpsDaemonPhase.SERVING, "")]


async def test_a_daemon_that_dies_is_reported_at_once_and_replaced(program: str) -> None:
    """SIGKILL leaves sockets behind; the next daemon takes over the very same directory.

    Lines that every look at a daemon adds to its log are not in the reason.
    """
    async with mps_stage(program=program) as stage:
        stage.run()
        await stage.serving()
        await answers(stage)
        inode, pid = stage.folders.pipe.stat().st_ino, stage.pid
        stage.kill()
        assert await stage.failure() == "its MPS daemon fails: it was killed by signal 9"
        await stage.serving(2)
        assert stage.pid != pid
        assert stage.folders.pipe.stat().st_ino == inode, "containers have it mounted"


async def test_a_daemon_that_is_stopped_is_killed_and_replaced(program: str) -> None:
    """It takes commands and answers none."""
    async with mps_stage(program=program, timing=HANGS) as stage:
        stage.run()
        await stage.serving()
        pid = stage.pid
        os.kill(pid, signal.SIGSTOP)
        assert "no response to get_server_list in 2 s" in await stage.failure()
        await stage.serving(2)
        assert not alive(pid)


async def test_an_option_that_the_driver_does_not_know_is_reported(program: str) -> None:
    """The program of driver 535 has no multi-user mode: it looks for a daemon instead."""
    async with mps_stage("-M", program=program) as stage:
        stage.faults("old")
        stage.run()
        assert await stage.failure() == (
            "its MPS daemon fails: it exited with status 1: Cannot find MPS control daemon "
            f"process; this driver's program does not know an option of {program} -f -M"
        )


async def test_a_stop_that_is_hurried_leaves_nothing_behind(program: str) -> None:
    """Cancelled again while it stops its daemon, as a plugin that ends may do."""
    async with mps_stage(program=program) as stage:
        stage.run()
        await stage.serving()
        pid = stage.pid
        stage.cancel()
        await asyncio.sleep(0)
        await stage.end()
        assert not alive(pid)


async def test_a_daemon_of_an_earlier_plugin_is_instructed_to_leave(program: str) -> None:
    """One that lives on in the directories quits, and ours serves."""
    async with mps_stage(program=program) as stage, leftover(stage) as other:
        stage.run()
        await stage.serving()
        async with asyncio.timeout(SECONDS):
            assert await other.wait() == 0
        assert stage.pid != other.pid


async def test_a_daemon_of_the_operator_is_looked_at_and_never_touched(program: str) -> None:
    """With --mps-pipe it is neither started nor stopped; its death is reported, its return too."""
    async with mps_stage(foreign=True, program=program) as stage:
        async with leftover(stage) as theirs:
            stage.run()
            await stage.serving()
            theirs.kill()
            why = await stage.failure()  # it may die before a question, or in the middle of one
            assert why.startswith("its MPS daemon fails: get_server_list failed: ")
        async with leftover(stage) as theirs:
            await stage.serving(2)
            await stage.end()
            await answers(stage)
            assert holder(stage.folders.pipe) == theirs.pid


async def test_a_start_in_folders_of_a_running_daemon_says_so(program: str) -> None:
    """NVIDIA's program prints it to standard output, which is part of the reason."""
    async with mps_stage(program=program) as stage, leftover(stage):
        late = await asyncio.create_subprocess_exec(
            program, "-f", env=stage.environment, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await late.communicate()
        assert (late.returncode, output) == (1, b"An instance of this daemon is already running\n")


async def test_what_a_daemon_prints_is_in_its_log_directory(program: str) -> None:
    """In the foreground it writes no files itself; root alone reads them."""
    async with mps_stage(program=program) as stage:
        stage.run()
        await stage.serving()
        await stage.control.send("dance", seconds=SECONDS)
        log = stage.folders.log / "control.log"
        async with asyncio.timeout(SECONDS):
            while not log.exists() or "Cmd:dance" not in log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert f"Starting control daemon using socket {stage.folders.pipe}/control" in (
            log.read_text()
        )
        assert [each.name for each in stage.folders.log.iterdir()] == ["control.log"]
        assert stat.S_IMODE(stage.folders.log.stat().st_mode) == 0o750


async def test_a_command_to_a_daemon_that_is_gone_fails(program: str) -> None:
    """With the words of the program."""
    async with mps_stage(program=program) as stage:
        prepare(stage.folders)
        with pytest.raises(ControlError, match="ps failed: Cannot find MPS control daemon process"):
            await stage.control.send("ps", seconds=SECONDS)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the place of another user, as root")
async def test_any_user_may_send_commands_but_none_may_end_the_daemon(program: str) -> None:
    """So says the guide for operators: default limits are not safe from the users of pipes."""
    async with mps_stage(program=program, timing=SELDOM) as stage:
        stage.folders.pipe.parents[1].chmod(0o755)
        stage.run()
        await stage.serving()
        lines = b"set_default_active_thread_percentage 10\nquit\nstart_server -uid 0\n"
        theirs = await asyncio.create_subprocess_exec(
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program),
            env=stage.environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await theirs.communicate(lines)
        assert output.decode().splitlines() == [
            "10.0",
            "Not enough privilege to execute quit command",
            f"Insufficient privileges for UID {NOBODY}",
        ]
        question = "get_default_active_thread_percentage"
        assert await stage.control.send(question, seconds=SECONDS) == "10.0"
        assert stage.supervisor.phase is MpsDaemonPhase.SERVING


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the place of another user, as root")
async def test_a_user_who_sends_command_after_command_ends_no_daemon(program: str) -> None:
    """NVIDIA's daemon answers one client at a time: a check that fails is repeated.

    A daemon that is replaced takes the pods of every tenant of its GPU along.
    """
    async with mps_stage(program=program, timing=OFTEN) as stage:
        stage.folders.pipe.parents[1].chmod(0o755)
        stage.run()
        await stage.serving()
        floods = [asyncio.create_task(flood(program, stage.environment)) for _ in range(3)]
        await asyncio.gather(*floods)
        assert stage.supervisor.phase is MpsDaemonPhase.SERVING
        assert stage.supervisor.starts == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the place of another user, as root")
async def test_a_user_who_keeps_a_daemon_busy_ends_it_for_nobody() -> None:
    """New pods are held off meanwhile; those that run keep their daemon. NVIDIA's program alone."""
    program = str(obtained(offline.ensure_mps_control))
    async with mps_stage(program=program, timing=ONE_ATTEMPT) as stage:
        stage.folders.pipe.parents[1].chmod(0o755)
        stage.run()
        await stage.serving()
        client = await asyncio.create_subprocess_exec(
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program),
            env=stage.environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert client.stdin is not None
        failure = await stage.failure()
        assert failure.startswith("its MPS daemon fails: get_server_list failed: ")
        client.stdin.close()
        await client.wait()
        await stage.serving(times=2)
        assert stage.supervisor.starts == 1


async def flood(program: str, environment: Mapping[str, str]) -> None:
    """Send commands as another user, from one program after another."""
    for _ in range(25):
        client = await asyncio.create_subprocess_exec(
            *("timeout", "2", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *(program,),
            env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await client.communicate(b"get_server_list\nquit\n" * 20)
