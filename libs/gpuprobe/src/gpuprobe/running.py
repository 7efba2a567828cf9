"""Runs commands: those of another program, line by line, or the steps of a plan.

A plan is what a container runs that nobody can talk to: its answers are the container's log. A
step is a command of :class:`gpuprobe.worker.CudaWorker`, or one of :class:`PlanSteps`.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TextIO

from gpuprobe import container
from gpuprobe.children import ChildProgram, forked, started
from gpuprobe.driver import CudaDevice, CudaError, load
from gpuprobe.names import ENDED, EXPECT, FOLDER, OUTSIDE, READY
from gpuprobe.worker import CudaWorker

Answer = dict[str, Any]
Step = dict[str, Any]

_LOOK_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 90.0


def serve(commands: Iterable[str], replies: TextIO) -> int:
    """Answer commands, a line each; exit status 1 if there is no GPU to work on."""
    try:
        worker = CudaWorker(CudaDevice(load()))
        say({"ok": worker.describe()}, replies)
    except CudaError as error:
        say(refused(error), replies)
        return 1
    for line in commands:
        command = json.loads(line)
        say(answered(lambda: _called(worker, command)), replies)  # noqa: B023 - called at once
    return 0


def run(plan: list[Step], replies: TextIO) -> None:
    """Run the steps in order, with a line for each; a refused step does not end the plan.

    But for ``expect``: what follows it may disturb only those that use the expected GPU.
    """
    with ExitStack() as stack:
        steps = PlanSteps(stack)
        for step in plan:
            for reply in steps.replies(step):
                say(reply, replies)
                if step["do"] == EXPECT and "error" in reply:
                    return


def run_from_outside(plan: list[Step], name: str) -> None:
    """Run a plan as a process that entered a running container, once that is ready for it."""
    folder = Path(os.environ[FOLDER])
    _await(folder / READY)
    unfinished = folder / f"{name}.unfinished"
    with unfinished.open("w") as replies:
        run(plan, replies)
    unfinished.replace(folder / name)


class PlanSteps:
    """The steps of one container.

    Args:
        stack: ends child programs with the plan.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._children: dict[str, ChildProgram] = {}

    def replies(self, step: Step) -> Iterator[Answer]:
        """The answer to a step, with the Unix times of its begin and end; several of ``watch``."""
        if step["do"] == "watch":
            yield from self._watch(**{key: value for key, value in step.items() if key != "do"})
            return
        begin = time.time()
        reply = answered(lambda: self._done(step))
        named = {"name": step["name"]} if "name" in step else {}
        yield {"do": step["do"], **named, "from": begin, "to": time.time()} | reply

    def _done(self, step: Step) -> Answer:
        own: Callable[..., Answer] | None = getattr(self, f"do_{step['do']}", None)
        if own is not None:
            return own(**{key: value for key, value in step.items() if key != "do"})
        return _called(self.worker, step)

    @cached_property
    def worker(self) -> CudaWorker:
        """The CUDA process that this program is; opened when a step needs it."""
        return CudaWorker(CudaDevice(load()))

    def do_environment(self) -> Answer:
        """What the container was given, without opening a GPU."""
        return container.described(os.environ)

    def do_expect(self, uuid: str) -> Answer:
        """Whether the container has this GPU, by a process of its own: this one may have to fork.

        Raises:
            CudaError: it has another one, or none.
        """
        child = started()
        found = child.finish()
        child.end()
        if "error" in found:
            raise CudaError(**found["error"])
        if (seen := found["ok"]["uuid"]) != uuid:
            raise CudaError("GPU of the container", -1, f"{seen}, not {uuid}")
        return {}

    def do_child(self, name: str, steps: list[Step], how: str = "exec", kill: str = "") -> Answer:
        """Run commands in a child, which stays with what it holds until ``leave``.

        Args:
            name: of the child.
            steps: its commands.
            how: ``exec`` starts the program anew; ``fork`` forks this one, which must not have
                opened a GPU.
            kill: a last command, in the middle of which it is killed.

        Returns:
            ``answers``: those of the child, its description first.
        """
        child = forked(serve) if how == "fork" else started()
        self._children[name] = child
        self._stack.callback(child.end)
        answers = [child.finish()]
        answers += [child.ask(step) for step in steps if "ok" in answers[0]]
        if kill:
            child.kill_during(json.loads(kill))
            answers.append({"ended": ENDED})
        return {"answers": answers}

    def do_leave(self, name: str) -> Answer:
        """End a child, and with it what it holds."""
        self._children.pop(name).end()
        return {}

    def do_stay(self, seconds: float) -> Answer:
        """Hold what is held for a while."""
        time.sleep(seconds)
        return {}

    def do_outside(self) -> Answer:
        """Let a process from outside into the container begin, and wait for its answers."""
        folder = Path(os.environ[FOLDER])
        (folder / READY).touch()
        _await(folder / OUTSIDE)
        lines = (folder / OUTSIDE).read_text().splitlines()
        return {"answers": [json.loads(line) for line in lines]}

    def _watch(
        self, seconds: float, blocks: int, milliseconds: float, mib: int, rounds: int = 0
    ) -> Iterator[Answer]:
        """Work for a while beside others; a line each half second, until the work fails.

        Args:
            rounds: size of the work, from the answer ``watch`` of another pod; 0 settles it, which
                only one that is alone on its GPU can.
        """
        try:
            self.worker.fill(mib)
            settled = rounds or int(self.worker.calibrate(blocks, milliseconds)["rounds"])
        except CudaError as error:
            yield {"do": "watch"} | refused(error)
            return
        yield {"do": "watch", "ok": {"rounds": settled}}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (report,) = self.replies({"do": "stint", "blocks": blocks, "rounds": settled})
            yield report
            if "error" in report:
                return

    def do_stint(self, blocks: int, rounds: int) -> Answer:
        """Half a second of work, and whether the memory that is held is as it was.

        All of its work counts: a request that is left out may be the one that a neighbour slowed.
        """
        done = self.worker.compute(blocks, rounds, launches=20, seconds=0.5, warm=True)
        intact = self.worker.verify()["intact"]
        return {key: done[key] for key in ("requests", "operations", "seconds")} | {
            "intact": intact
        }


def answered(work: Callable[[], Answer]) -> Answer:
    """The reply to one command."""
    try:
        return {"ok": work()}
    except CudaError as error:
        return refused(error)
    except OSError as error:
        return {"error": {"name": type(error).__name__, "code": -1, "call": str(error)}}


def refused(error: CudaError) -> Answer:
    """The reply that reports an error of CUDA."""
    return {"error": {"name": error.name, "code": error.code, "call": error.call}}


def say(reply: Answer, replies: TextIO) -> None:
    """One line, at once."""
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _called(worker: CudaWorker, command: Step) -> Answer:
    arguments = {key: value for key, value in command.items() if key != "do"}
    found: Answer = getattr(worker, command["do"])(**arguments)
    return found


def _await(path: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} did not appear in {_PATIENCE_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
