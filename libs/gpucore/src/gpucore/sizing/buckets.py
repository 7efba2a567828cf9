"""Buckets of histograms: of GPU memory, and of SM utilization with one for 0 % and one a 5 %.

Buckets of memory are narrow for small amounts, wide for large ones. The first is
:data:`FIRST_WIDTH` wide and every next one :data:`GROWTH` times as wide, so that a bucket is as
wide as 5 % of its lower edge and 64 MiB more. The last one has no upper edge.
"""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

MIB: Final = 1024 * 1024
FIRST_WIDTH: Final = 64 * MIB
GROWTH: Final = 1.05
MOST_BUCKETS: Final = 180
"""300 GiB need 113 buckets; 180 reach beyond 8 TiB."""

UPPER_EDGES: Final = tuple(
    accumulate(round(FIRST_WIDTH * GROWTH**number) for number in range(MOST_BUCKETS))
)
"""The largest amount of each bucket, in bytes."""
LAST: Final = MOST_BUCKETS - 1
WIDTH_PERCENT: Final = 5
LAST_SM: Final = 100 // WIDTH_PERCENT


def bucket_of(used_bytes: int) -> int:
    """The index of the bucket for an amount of memory in bytes."""
    return min(bisect_left(UPPER_EDGES, used_bytes), LAST)


def upper_edge(index: int) -> int:
    """The largest amount in bytes of the bucket with this index."""
    return UPPER_EDGES[min(max(index, 0), LAST)]


def percentile_index(buckets: Mapping[int, int], percent: float) -> int | None:
    """The index of the bucket that the percentile lies in; ``None`` without samples.

    Args:
        buckets: number of samples by index.
        percent: 0 to 100; other values count as the nearest of these.
    """
    total = sum(buckets.values())
    needed = max(total * min(max(percent, 0.0), 100.0) / 100.0, 1)
    counted = 0
    for index in sorted(buckets):
        counted += buckets[index]
        if counted >= needed:
            return index
    return max(buckets, default=None)


def percentile_edge(buckets: Mapping[int, int], percent: float) -> int:
    """The upper edge of the bucket that the percentile lies in; 0 without samples.

    Args:
        percent: as of :func:`percentile_index`.
    """
    index = percentile_index(buckets, percent)
    return 0 if index is None else upper_edge(index)


def sm_bucket_of(percent: int) -> int:
    """The index of the bucket for a utilization; others than 0 to 100 count as the nearest."""
    return min(-(-max(percent, 0) // WIDTH_PERCENT), LAST_SM)


def sm_upper_edge(index: int) -> int:
    """The highest utilization in percent of the bucket with this index."""
    return min(max(index, 0), LAST_SM) * WIDTH_PERCENT
