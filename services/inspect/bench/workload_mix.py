"""Workloads whose requests come from a published trace of pods.

The trace is that of the published simulator (hkust-adsl/kubernetes-scheduler-simulator): each of
its pods has a number of GPUs, or a part of one GPU, and a class of service. It has no memory in use
and no kinds of programs, so these follow from the facts and assumptions of ``workload_shapes``.
"""

import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeVar

from workload_shapes import MOST, Shape, Workload

NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = "openb_pod_list_{}.csv"
GIB: Final = 1 << 30
T = TypeVar("T")
MEMORY: Final[Mapping[str, int]] = {
    "T4": 16,
    "P100": 16,
    "V100M16": 16,
    "V100M32": 32,
    "A10": 24,
    "G2": 24,
    "G3": 80,
}
"""GiB by model. The trace hides what G2 and G3 are: assumptions."""
SERVICE: Final = "LS"
"""The trace's class of pods that answer requests: the others count as best effort."""
OF_SERVICES: Final = ((Shape.SERVER, 0.75), (Shape.TAKER, 0.25))
OF_OTHERS: Final = ((Shape.TRAINING, 0.5), (Shape.BATCH, 0.35), (Shape.NOTEBOOK, 0.15))
"""Assumptions."""
ONCE: Final = 0.35
"""Part of training and batch workloads that run once; published, see ``workload_shapes``."""
TAKEN: Final = ((0.9, 0.6), (0.95, 0.1), (0.98, 0.1), (0.8, 0.1), (0.75, 0.1))
"""Parts of the share that servers take, and how often (assumption)."""


class TracePod(NamedTuple):
    """What a pod of the trace requests: a part of a GPU if ``milli`` is below 1,000."""

    gpus: int
    milli: int
    service: bool


class Trace(NamedTuple):
    """Pods with GPUs, and the number of GPUs by model."""

    pods: tuple[TracePod, ...]
    models: Mapping[str, int]

    @property
    def gpu_sizes(self) -> tuple[int, ...]:
        """GiB of the GPUs, each size once."""
        return tuple(sorted({MEMORY[model] for model in self.models}))


def read_trace(folder: Path, name: str) -> Trace:
    """The trace in a folder.

    Raises:
        OSError: a file cannot be read.
        KeyError, ValueError: a file is no such trace.
    """
    with (folder / PODS.format(name)).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"])]
    models = Counter[str]()
    with (folder / NODES).open(newline="") as file:
        for row in csv.DictReader(file):
            models[row["model"]] += int(row["gpu"])
    pods = (
        TracePod(int(row["num_gpu"]), int(row["gpu_milli"]), row["qos"] == SERVICE) for row in rows
    )
    return Trace(tuple(pods), models)


def workloads(trace: Trace, seed: int, number: int) -> list[Workload]:
    """Workloads with the requests of pods that are drawn from the trace."""
    chance = Random(f"{seed} mix")
    models, weights = zip(*sorted(trace.models.items()), strict=True)
    drawn = chance.choices(trace.pods, k=number)
    of_gpu = chance.choices(models, weights, k=number)
    return [
        _workload(f"{seed}-{index}", pod, MEMORY[model], chance)
        for index, (pod, model) in enumerate(zip(drawn, of_gpu, strict=True))
    ]


def _workload(name: str, pod: TracePod, gib: int, chance: Random) -> Workload:
    shape = _drawn(chance, OF_SERVICES if pod.service else OF_OTHERS)
    exclusive = pod.gpus > 1 or pod.milli >= 1000
    units = pod.gpus * gib if exclusive else max(round(pod.milli * gib / 1000), 1)
    part = _used_part(chance, exclusive=exclusive)
    repeats = shape in {Shape.SERVER, Shape.TAKER, Shape.NOTEBOOK}
    taken = _drawn(chance, TAKEN) if shape is Shape.TAKER else 0.0
    need = part * taken if taken else min(part, MOST)
    return Workload(
        name=name,
        shape=shape,
        request=units * GIB,
        gpus=pod.gpus,
        exclusive=exclusive,
        once=not repeats and chance.random() < ONCE,
        need=int(need * units * GIB),
        taken=taken,
        replicas=chance.randrange(1, 4) if pod.service else 1,
    )


def _used_part(chance: Random, *, exclusive: bool) -> float:
    """Published means, see ``workload_shapes``; the spread around them is an assumption."""
    if exclusive:
        return chance.uniform(0.1, 0.5) if chance.random() < 0.8 else chance.uniform(0.5, 0.95)
    return chance.betavariate(2.7, 2.3)


def _drawn(chance: Random, choices: tuple[tuple[T, float], ...]) -> T:
    values, weights = zip(*choices, strict=True)
    found: T = chance.choices(values, weights)[0]
    return found
