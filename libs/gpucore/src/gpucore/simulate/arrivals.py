"""The pods of a trace as arrivals of a replay, by chance that the caller gives."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gpucore.simulate.traces import TracePod

T = TypeVar("T")
Pick = Callable[[int], int]
"""A number from 0 up to the argument, which it excludes."""


def drawn(pods: Sequence[TracePod], pick: Pick) -> Iterator[TracePod]:
    """Pods of the trace for ever, each any of all pods."""
    while True:
        yield pods[pick(len(pods))]


def once(pods: Sequence[TracePod], milli: int, pick: Pick) -> list[TracePod]:
    """Every pod of the trace once, and copies of any until the GPUs are requested; shuffled.

    Where the trace requests more GPUs than that, pods are left out by chance. It is the arrivals of
    the published runs of fragmentation gradient descent.

    Args:
        milli: thousandths of GPUs that all arrivals may request together.
    """
    found, requested = list(pods), sum(pod.milli for pod in pods)
    while requested > milli:
        place = pick(len(found))
        found[place], found[-1] = found[-1], found[place]
        requested -= found.pop().milli
    if len(found) == len(pods):
        for copy in drawn(pods, pick):
            if requested + copy.gpu_milli > milli:
                break
            found.append(copy)
            requested += copy.milli
    return shuffled(found, pick)


def shuffled(items: Sequence[T], pick: Pick) -> list[T]:
    """The same in any order."""
    left = list(items)
    for last in range(len(left) - 1, 0, -1):
        place = pick(last + 1)
        left[place], left[last] = left[last], left[place]
    return left
