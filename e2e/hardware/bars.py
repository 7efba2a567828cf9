"""What the suite demands of real GPUs; docs/isolation.md states the same figures."""

from typing import Final

HALF_OF_THREADS: Final = (0.3, 0.9)
"""Part of the arithmetic of 100 % that 50 % of the threads must lie between.

A GPU at its limit of power clocks down with all threads, so half of them may do more than half.
"""
TENTH_OF_THREADS: Final = 0.3
"""The same for 10 % of the threads: less than this."""
