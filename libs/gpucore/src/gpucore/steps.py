"""Long computations in steps: the caller may do other work between two of them.

A question about thousands of nodes takes tenths of a second. A command runs all steps at once; a
server lets its other requests run between them.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Yields where the caller may pause, and returns the result."""


def complete(steps: Steps[T]) -> T:
    """Run all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
