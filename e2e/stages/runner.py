"""Run stages: phases after each other, the lanes of a phase beside each other.

The first stage that fails ends the run: the stages beside it are interrupted, so that they remove
their clusters, and later ones are not started. Each stage's output goes to the terminal and to a
file of its own.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stages.plan import Lane, Phase, Stage

NICE = 10
"""Of a stage that gives way, as the command ``nice`` sets it."""
END_SECONDS = 240.0
"""For a stage that was interrupted: pytest removes its cluster."""
_KEPT_LINES = 400
_JOB_SLOTS = re.compile(r"(^|\s)(-j\d*|--jobserver-\S+)(?=\s|$)")
_ARGUMENTS = re.compile(r"(^|\s)ARGS:*=(\\.|[^\s\\])*")
"""The variable ARGS of make's command line; a backslash is before each blank of its value."""


@dataclass(frozen=True)
class StageResult:
    """What became of a stage.

    Attributes:
        seconds: by the clock.
        busy: cores that the machine had busy on average meanwhile, whoever used them.
        lines: the last of its output.
        interrupted: another stage failed first.
    """

    name: str
    seconds: float
    busy: float
    status: int
    lines: tuple[str, ...] = ()
    interrupted: bool = False


@dataclass
class Run:
    """One run of a plan.

    Args:
        logs: folder of the files with each stage's output.
        keep_going: run all stages whatever fails.
        lock: file descriptors that every stage inherits, so that the lock behind them is held until
            the last stage has ended, also where this process was killed.

    Attributes:
        results: of the stages that ran, in the order in which they ended.
    """

    logs: Path
    keep_going: bool = False
    lock: tuple[int, ...] = ()
    results: list[StageResult] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _processes: set[subprocess.Popen[str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lanes_ahead: int = 0

    def run(self, phases: Iterable[Phase]) -> None:
        """Run them; results tell how it went. An interrupt ends the stages that run, in order."""
        for phase in phases:
            self._lanes_ahead = sum(not _gives_way(lane) for lane in phase)
            with ThreadPoolExecutor(max_workers=len(phase)) as beside:
                lanes = [beside.submit(self._lane, lane) for lane in phase]
                try:
                    for lane in lanes:
                        lane.result()
                except KeyboardInterrupt:
                    self._stop()
                    raise

    @property
    def failures(self) -> list[StageResult]:
        """Stages that failed by themselves."""
        return [each for each in self.results if each.status and not each.interrupted]

    def _lane(self, lane: Lane) -> None:
        self._stages(lane)
        if not _gives_way(lane):
            self._lane_ended()

    def _lane_ended(self) -> None:
        """After the last lane that others gave way to, those run as any program does."""
        with self._lock:
            self._lanes_ahead -= 1
            if not self._lanes_ahead:
                for process in self._processes:
                    stop_giving_way(process.pid)

    def _stages(self, lane: Lane) -> None:
        for stage in lane:
            if self._stopped.is_set():
                return
            result = self._stage(stage)
            with self._lock:
                self.results.append(result)
            # A second interrupt would end the removal of a cluster that the first one began.
            if result.status and not result.interrupted and not self.keep_going:
                self._stop()

    def _stop(self) -> None:
        """Start no more stages, and interrupt those that run."""
        self._stopped.set()
        with self._lock:
            running = list(self._processes)
        for process in running:
            _signal(process, signal.SIGINT)
            killer = threading.Timer(END_SECONDS, partial(_signal, process, signal.SIGKILL))
            killer.daemon = True
            killer.start()

    def _stage(self, stage: Stage) -> StageResult:
        begin, used = time.monotonic(), busy_seconds()
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        with self._start(stage) as process:
            self._copy(process, stage, lines)
        with self._lock:
            self._processes.discard(process)
        seconds = time.monotonic() - begin
        busy = (busy_seconds() - used) / max(seconds, 0.01)
        interrupted = process.returncode != 0 and self._stopped.is_set()
        return StageResult(stage.name, seconds, busy, process.returncode, tuple(lines), interrupted)

    def _start(self, stage: Stage) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            stage.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment(os.environ),
            start_new_session=True,
            pass_fds=self.lock,
        )
        with self._lock:
            self._processes.add(process)
            if stage.nice and self._lanes_ahead:
                give_way(process.pid)
        if self._stopped.is_set():
            _signal(process, signal.SIGINT)
        return process

    def _copy(self, process: subprocess.Popen[str], stage: Stage, lines: deque[str]) -> None:
        assert process.stdout is not None
        with log_file(self.logs, stage.name).open("w", encoding="utf-8", buffering=1) as log:
            for line in process.stdout:
                log.write(line)
                with suppress(OSError):  # the terminal is lost, and the stage still cleans up
                    sys.stdout.write(line)
                    sys.stdout.flush()
                lines.append(line.rstrip())


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Of a stage: make's job slots stay with the make that has them, output comes at once.

    ARGS does not go on: it is for one stage, whose command line has it.
    """
    flags = _JOB_SLOTS.sub(" ", _ARGUMENTS.sub(" ", variables.get("MAKEFLAGS", ""))).strip()
    others = {name: value for name, value in variables.items() if name != "ARGS"}
    return {**others, "MAKEFLAGS": flags, "PYTHONUNBUFFERED": "1"}


def give_way(pid: int, processes: Path = Path("/proc")) -> None:
    """Let a session run after the others where the kernel schedules whole sessions.

    There (``sched_autogroup_enabled``, the default of most distributions) the nice value of a
    process counts among those of its own session only.
    """
    with suppress(OSError):
        (processes / str(pid) / "autogroup").write_text(str(NICE))


def stop_giving_way(pid: int) -> None:
    """Let a session run as the others do again; only root may, others leave it as it is.

    On a machine that has other work it would hardly get a turn.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, 0)
        Path(f"/proc/{pid}/autogroup").write_text("0")


def _gives_way(lane: Lane) -> bool:
    return all(stage.nice for stage in lane)


def log_file(logs: Path, name: str) -> Path:
    """The file with the output of a stage; its folder exists."""
    logs.mkdir(parents=True, exist_ok=True)
    return logs / f"{re.sub('[^a-z0-9.]+', '-', name.lower())}.log"


def not_run(phases: Sequence[Phase], results: Sequence[StageResult]) -> list[str]:
    """Names of the stages of a plan that did not start."""
    ran = {result.name for result in results}
    names = [stage.name for phase in phases for lane in phase for stage in lane]
    return [name for name in names if name not in ran]


def busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Processor time that all programs of the machine have used since its start."""
    total = stat.read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, total[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)
