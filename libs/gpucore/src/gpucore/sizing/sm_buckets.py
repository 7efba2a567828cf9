"""Buckets of a histogram of SM utilization: one for 0 %, and one for every 5 % above it."""

from typing import Final

WIDTH_PERCENT: Final = 5
LAST_SM: Final = 100 // WIDTH_PERCENT


def sm_bucket_of(percent: int) -> int:
    """The index of the bucket for a utilization; others than 0 to 100 count as the nearest."""
    return min(-(-max(percent, 0) // WIDTH_PERCENT), LAST_SM)


def sm_upper_edge(index: int) -> int:
    """The highest utilization in percent of the bucket with this index."""
    return min(max(index, 0), LAST_SM) * WIDTH_PERCENT
