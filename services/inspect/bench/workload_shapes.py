"""Memory in use of typical GPU workloads, week by week, from published facts and assumptions.

Every figure of a shape is one of these. Published:

- Requests, the numbers of GPUs, and services against best-effort pods: the trace (see
  ``workload_mix``).
- Shares: of limits that people set by hand, 46 % was not used (Autopilot, EuroSys 2020: of host
  memory and processors, because no such figure of shares of GPUs is known).
- Whole GPUs: on 80 % of them the application uses less than half of the memory (AntMan, OSDI 2020).
- Training: frameworks keep what they allocated in a cache, so that use rises and stays (PyTorch's
  notes on CUDA). Most tasks are repetitions of earlier ones (MLaaS in the Wild, NSDI 2022: about
  65 % ran five times or more).
- Servers: load follows the day and the week (SageServe, 2025, and the Azure traces of language
  models of 2024).
- Servers that take their share: vLLM 90 % by default, JAX 75 %, TensorFlow nearly all (their docs).
- Notebooks hold a GPU for long and use it for a small part of that time (NotebookOS, 2025).

The figures of AntMan and of MLaaS in the Wild are as remembered and not compared with the papers.
Assumptions: all other figures, named where they are used. No use exceeds the request that the
workload has, so that every out-of-memory comes from a smaller size.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from math import pi, sin
from random import Random
from typing import Final, NamedTuple

MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
CHANGED_RUNS: Final = 0.02
"""Assumption: this part of all starts is of a program that its owner has changed."""
MOST: Final = 0.97
"""Assumption: no workload uses more than this part of its request."""


class Shape(StrEnum):
    """Classes of workloads."""

    TRAINING = "training"
    SERVER = "server"
    TAKER = "server that takes its share"
    NOTEBOOK = "notebook"
    BATCH = "batch"


class Workload(NamedTuple):
    """One workload.

    Attributes:
        name: unique.
        request: bytes of all GPUs of a pod.
        gpus: number of GPUs of a pod.
        exclusive: it requests whole GPUs.
        once: it runs once under its name.
        need: bytes that it usually uses at its busiest.
        taken: part of its limit that a taker takes.
        replicas: number of pods at a time.
    """

    name: str
    shape: Shape
    request: int
    gpus: int
    exclusive: bool
    once: bool
    need: int
    taken: float = 0.0
    replicas: int = 1


class Step(NamedTuple):
    """Memory from a time on.

    Attributes:
        at: seconds.
        used: bytes in use; of a taker those that it needs at least.
        needed: bytes without which the program fails: not what it only keeps.
    """

    at: float
    used: int
    needed: int


class PodRun(NamedTuple):
    """A pod from its start to its end.

    Attributes:
        begin, end: seconds.
        steps: in the order of time.
        changed: its program was changed by its owner since the runs before.
    """

    begin: float
    end: float
    steps: tuple[Step, ...]
    changed: bool = False


class _Program(NamedTuple):
    """Its need as a multiple of the usual one, and whether its owner has changed it."""

    factor: float
    changed: bool


Parts = Iterator[tuple[float, float, float]]
"""Seconds, and the parts of the usual need that are used and needed."""


def runs(workload: Workload, seed: int, week: int) -> list[PodRun]:
    """The pods of a workload in a week, which begins at ``week`` times :data:`WEEK`.

    A patch starts a rollout, so no pod runs from one week into the next.
    """
    chance = Random(f"{seed} {workload.name} {week}")
    found = _RUNS[workload.shape](workload, chance, week * WEEK)
    return list(islice(found, 1 if workload.once else None))


def _training(workload: Workload, chance: Random, begin: float) -> Iterator[PodRun]:
    """Assumptions: runs of 6 hours in the median, 8 hours apart; 3 % from run to run."""
    for start, end in _periods(chance, begin, 6 * HOUR, 0.9, 8 * HOUR):
        yield _run(workload, _program(chance, 0.03), start, end, _trained(chance, start, end))


def _trained(chance: Random, start: float, end: float) -> Parts:
    """Use rises in 5 steps, then each hour evaluates and saves.

    Assumptions: the rise takes 2 to 10 minutes; an evaluation takes 3 minutes and up to 6 % more,
    a checkpoint 5 to 20 seconds and up to 6 % more; in a third of the runs inputs vary, and each
    hour adds up to 0.5 %, which stays.
    """
    ramp, growing = chance.uniform(2, 10) * MINUTE, chance.random() < 1 / 3
    levels = [(start + ramp * step / 5, 0.3 + 0.12 * step) for step in range(5)]
    level, now = 0.9, start + ramp
    while now < end:
        late = now + 50 * MINUTE
        levels += (now, level), (now + 40 * MINUTE, level * chance.uniform(1, 1.06))
        levels += (now + 43 * MINUTE, level), (late, level * chance.uniform(1, 1.06))
        levels.append((late + chance.uniform(5, 20), level))
        level = min(level * (1 + growing * chance.uniform(0, 0.005)), 1.0)
        now += HOUR
    return ((at, part, part) for at, part in levels)


def _server(workload: Workload, chance: Random, begin: float) -> Iterator[PodRun]:
    """Assumptions: 0 to 3 rollouts a week; the load of weeks differs by 10 %."""
    cuts = sorted(chance.uniform(0, WEEK) for _ in range(chance.randrange(4)))
    level, weights = chance.lognormvariate(0, 0.1), Random(workload.name).uniform(0.5, 0.8)
    keeps = Random(workload.name).random() < 1 / 2
    for low, high in zip((0.0, *cuts), (*cuts, WEEK), strict=True):
        program, start, end = _program(chance, 0.0), begin + low, begin + high
        for _ in range(workload.replicas):
            steps = _served(chance, start, end, level, weights, keeps=keeps)
            yield _run(workload, program, start, end, steps)


def _served(
    chance: Random, start: float, end: float, level: float, weights: float, *, keeps: bool
) -> Parts:
    """Weights, and memory for requests that follows the load of every 5 minutes.

    Assumptions: loading takes a minute and up to a tenth more than the weights; noise of 10 %; a
    burst of up to 1.6 times the load every second day; half of the servers keep what they had.
    """
    loading = weights * chance.uniform(1.0, 1.1)
    yield start, loading, loading
    now, kept = start + MINUTE, 0.0
    while now < end:
        burst = chance.uniform(1.1, 1.6) if chance.random() < 1 / 576 else 1.0
        load = level * _load(now) * burst * chance.lognormvariate(0, 0.1)
        used = weights + (1 - weights) * load
        kept = max(kept, used) if keeps else used
        yield now, kept, used
        now += 5 * MINUTE


def _load(now: float) -> float:
    """Part of the busiest hour: 30 % at night (assumption), and 60 % of it at weekends."""
    day = 0.65 + 0.35 * sin(2 * pi * (now / DAY - 1 / 3))
    return day * (0.6 if now // DAY % 7 >= 5 else 1.0)


def _taker(workload: Workload, chance: Random, begin: float) -> Iterator[PodRun]:
    """Assumption: 0 to 3 rollouts a week."""
    cuts = sorted(chance.uniform(0, WEEK) for _ in range(chance.randrange(4)))
    for low, high in zip((0.0, *cuts), (*cuts, WEEK), strict=True):
        for _ in range(workload.replicas):
            start = begin + low
            yield PodRun(start, begin + high, (Step(start, workload.need, workload.need),))


def _notebook(workload: Workload, chance: Random, begin: float) -> Iterator[PodRun]:
    """One pod all week; assumption: need differs by 35 % from session to session."""
    program = _Program(1.0, changed=False)
    yield _run(workload, program, begin, begin + WEEK, _sessions(chance, begin))


def _sessions(chance: Random, begin: float) -> Parts:
    """Assumptions: 0 to 2 sessions a working day of 20 to 120 minutes; half keep their memory."""
    yield begin, 0.0, 0.0
    for day in range(5):
        for hour in sorted(chance.sample((9, 11, 14, 16), chance.randrange(3))):
            now, most = begin + day * DAY + hour * HOUR, chance.lognormvariate(-0.3, 0.35)
            for part in (0.2, 0.5, 0.8, 1.0):
                yield now, most * part, most * part
                now += chance.uniform(5, 30) * MINUTE
            yield now, most * chance.randrange(2), 0.0


def _batch(workload: Workload, chance: Random, begin: float) -> Iterator[PodRun]:
    """Assumptions: 10 minutes in the median, every 1 to 24 hours; 8 % from run to run."""
    pause = Random(workload.name).choice((1, 2, 6, 24)) * HOUR
    for start, end in _periods(chance, begin, 10 * MINUTE, 0.6, pause):
        steps = iter(((start, 0.4, 0.4), (start + MINUTE, 0.85, 0.85)))
        yield _run(workload, _program(chance, 0.08), start, end, steps)


def _periods(
    chance: Random, begin: float, usual: float, spread: float, pause: float
) -> Iterator[tuple[float, float]]:
    """Start and end of runs, one after the other."""
    now = begin + chance.uniform(0, DAY)
    while now < begin + WEEK - HOUR:
        end = min(now + usual * chance.lognormvariate(0, spread), begin + WEEK)
        yield now, end
        now = end + pause * chance.uniform(0.5, 1.5)


def _program(chance: Random, spread: float) -> _Program:
    """What runs or is rolled out; assumption: a changed one needs 0.8 to 1.3 times as much."""
    changed = chance.random() < CHANGED_RUNS
    factor = chance.uniform(0.8, 1.3) if changed else 1.0
    return _Program(factor * chance.lognormvariate(0, spread), changed)


def _run(workload: Workload, program: _Program, start: float, end: float, steps: Parts) -> PodRun:
    most, need = int(MOST * workload.request), program.factor * workload.need
    found = (
        Step(at, min(int(used * need), most), min(int(needed * need), most))
        for at, used, needed in steps
    )
    return PodRun(start, end, tuple(each for each in found if each.at < end), program.changed)


_RUNS: Final[Mapping[Shape, Callable[[Workload, Random, float], Iterator[PodRun]]]] = {
    Shape.TRAINING: _training,
    Shape.SERVER: _server,
    Shape.TAKER: _taker,
    Shape.NOTEBOOK: _notebook,
    Shape.BATCH: _batch,
}
