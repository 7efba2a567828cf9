"""A share of compute limits compute: the same kernels with several percentages."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuprobe.checks.answers import first, value
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged

PERCENTS: Final = (100, 75, 50, 25, 10)
SMALL_PART: Final = 8
"""Blocks for each multiprocessor of a kernel that fills a GPU; its inverse for small kernels."""
FULL_KERNEL_MS: Final = 5.0
COPY_MIB: Final = 256
VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

HALF_OF_THREADS: Final = (0.3, 0.9)
"""Part of the arithmetic of 100 % that 50 % of the threads must lie between.

A GPU at its limit of power clocks down with all threads, so half of them may do more than half.
"""
TENTH_OF_THREADS: Final = 0.3
"""The same for 10 % of the threads: less than this."""


def calibrating(multiprocessors: int) -> Step:
    """Settle the size of the kernels that fill this GPU, on one client alone."""
    return {
        "do": "calibrate",
        "blocks": multiprocessors * SMALL_PART,
        "milliseconds": FULL_KERNEL_MS,
    }


def burning(multiprocessors: int, rounds: int, seconds: float) -> Step:
    """Kernels that would fill the GPU: arithmetic."""
    return {
        "do": "compute",
        "blocks": multiprocessors * SMALL_PART,
        "rounds": rounds,
        "launches": 1,
        "seconds": seconds,
    }


def copying(seconds: float) -> Step:
    """Kernels that would fill the GPU: copies within its memory."""
    return {"do": "copy", "mib": COPY_MIB, "seconds": seconds}


def limited_steps(step: Step) -> list[Step]:
    """A step in a pod with a share of compute, which reports its variables first."""
    return [{"do": "environment"}, step]


def percent_given(answers: Sequence[Answer]) -> str:
    """The percentage in the variables of such a pod; empty for none.

    Raises:
        MissingAnswerError: it reported nothing.
    """
    return str(first(answers, "environment")["variables"].get(VARIABLE, ""))


def tflops(answer: Answer) -> float:
    """The rate of :func:`burning`."""
    return float(answer["operations"] / answer["seconds"] / 1e12)


def gigabytes(answer: Answer) -> float:
    """The rate of :func:`copying`, in GB/s."""
    return float(answer["bytes"] / answer["seconds"] / 1e9)


def requests(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Rates and latencies of clients that answered requests at the same time."""
    times = sorted(ms for answer in answers for ms in answer["milliseconds"])
    rates = [answer["requests"] / answer["seconds"] for answer in answers]
    return {
        "requests_per_s": sum(rates),
        "slowest_client_per_s": min(rates),
        "p50_ms": statistics.median(times),
        "p99_ms": times[int(len(times) * 0.99)],
    }


def limited(rates: Mapping[str, float]) -> list[str]:
    """What contradicts a limit, in rates by percent, 100 among them; empty where it holds."""
    parts = {percent: rate / rates["100"] for percent, rate in rates.items()}
    faults = []
    least, most = HALF_OF_THREADS
    if "50" in parts and not least < parts["50"] < most:
        faults.append(f"50 % reaches {parts['50']:.0%}, not {least:.0%} to {most:.0%}")
    if "10" in parts and parts["10"] >= TENTH_OF_THREADS:
        faults.append(f"10 % reaches {parts['10']:.0%}, not less than {TENTH_OF_THREADS:.0%}")
    return faults


def figures(answers: Mapping[int, Answer]) -> Figures:
    """TFLOP/s by percent, from the answers to :func:`burning`.

    Raises:
        MissingAnswerError: one was refused.
    """
    return {f"tflops_{percent}": tflops(value(answer)) for percent, answer in answers.items()}


def proof(found: Figures, given: Mapping[int, str]) -> Proof:
    """The row ``compute``; ``given`` has :func:`percent_given` by the percent requested."""
    rates = {name.removeprefix("tflops_"): rate for name, rate in found.items()}
    faults = [
        f"{VARIABLE} is {text or 'not set'} in a pod with {percent} %"
        for percent, text in given.items()
        if text != str(percent)
    ]
    faults += limited(rates)
    parts = [f"{percent} % reaches {rate / rates['100']:.0%}" for percent, rate in rates.items()]
    return judged(
        "compute",
        holds=not faults,
        expected="50 % of compute does about half of the arithmetic, 10 % less than 30 %",
        seen="; ".join(faults) or "; ".join(part for part in parts if part != "100 % reaches 100%"),
        next_step="check that the MPS daemon of the GPU runs: without it CUDA ignores percentages",
        figures=found,
    )
