"""Commands to an MPS daemon by the control program, played by small shell scripts."""

import os
from pathlib import Path

import pytest

from gpudeviceplugin.isolation.mps.control import Control, environment
from gpudeviceplugin.isolation.mps.errors import (
    BusyError,
    ControlError,
    NoDaemonError,
    ProgramError,
)
from gpudeviceplugin.isolation.mps.folders import Folders

FOLDERS = Folders(Path("/mps/pipe"), Path("/mps/log"))
SECONDS = 60.0


def alive(file: Path) -> bool:
    """The process of this file lives; on a busy machine it may not have come to write one."""
    return file.exists() and Path(f"/proc/{int(file.read_text())}").exists()


def control(folder: Path, *lines: str) -> Control:
    """A control program that does this."""
    program = folder / "control"
    program.write_text("\n".join(("#!/bin/sh", *lines)))
    program.chmod(0o755)
    return Control(str(program), FOLDERS)


async def test_a_command_is_a_line_and_the_answer_what_was_printed(tmp_path: Path) -> None:
    """Without the white space around it; the daemon is that of the folders."""
    made = control(tmp_path, "read line", 'echo " $line of $CUDA_MPS_PIPE_DIRECTORY "')
    assert await made.send("ps", seconds=SECONDS) == "ps of /mps/pipe"


async def test_a_command_that_fails_has_the_last_of_what_was_printed(tmp_path: Path) -> None:
    """Any status but 0; without words the status itself."""
    with pytest.raises(ControlError, match=r"^ps failed: Cannot find MPS control daemon process$"):
        await control(tmp_path, "echo 'Cannot find MPS control daemon process' >&2", "exit 1").send(
            "ps", seconds=SECONDS
        )
    with pytest.raises(ControlError, match=r"^ps failed: 3$"):
        await control(tmp_path, "exit 3").send("ps", seconds=SECONDS)


async def test_of_a_long_error_the_end_is_kept(tmp_path: Path) -> None:
    """The program prints the reason last."""
    with pytest.raises(ControlError, match=r" the reason$"):
        await control(tmp_path, "printf '%0300d the reason' 0", "exit 1").send(
            "ps", seconds=SECONDS
        )


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        ("Cannot find MPS control daemon process", NoDaemonError),
        ("Cannot send command to MPS control daemon process", BusyError),
        ("", BusyError),
        ("Permission denied", ControlError),
    ],
)
async def test_only_a_busy_daemon_may_answer_later(
    tmp_path: Path, printed: str, kind: type[ControlError]
) -> None:
    """A daemon that reads from another client is not dead; the program often prints nothing."""
    with pytest.raises(ControlError) as failure:
        await control(tmp_path, f"printf '{printed}'", "exit 1").send("ps", seconds=SECONDS)
    assert failure.type is kind


@pytest.mark.parametrize("end", ["kill -KILL $$", "exec /none", "printf 'loading: no' && exit 127"])
async def test_a_program_that_did_not_run_shows_nothing_about_the_daemon(
    tmp_path: Path, end: str
) -> None:
    """It was killed for want of memory, or its libraries could not be loaded."""
    with pytest.raises(ProgramError):
        await control(tmp_path, end).send("ps", seconds=SECONDS)


async def test_a_command_without_an_answer_leaves_no_process(tmp_path: Path) -> None:
    """It is killed and reaped when its time is over."""
    pid = tmp_path / "pid"
    made = control(tmp_path, f"echo $$ > {pid}.new", f"mv {pid}.new {pid}", "exec sleep 60")
    with pytest.raises(ControlError, match=r"^no response to ps in 0\.2 s$"):
        await made.send("ps", seconds=0.19999)  # what is left of a longer time
    assert not alive(pid)


async def test_a_program_that_is_missing_is_named() -> None:
    """The message has the error text of the operating system."""
    with pytest.raises(ProgramError, match=r"^cannot run /none: No such file or directory$"):
        await Control("/none", FOLDERS).send("ps", seconds=SECONDS)


def test_a_daemon_inherits_nothing_of_another_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA variables of the plugin's environment are not passed on; only a daemon has a GPU."""
    monkeypatch.setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    place = {"CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe", "CUDA_MPS_LOG_DIRECTORY": "/mps/log"}
    command, daemon = environment(FOLDERS), environment(FOLDERS, "GPU-0")
    assert daemon == command | {"CUDA_VISIBLE_DEVICES": "GPU-0"}
    ours = {key: text for key, text in command.items() if key.startswith("CUDA_")}
    assert ours == place
    assert command["PATH"] == os.environ["PATH"]
