"""Sentences of ``gpushare recommend`` about where the measurements come from."""

from gpuinspect.cluster.usage_histories import HistorySource, ReadHistories


def source_notes(histories: ReadHistories, window: str) -> list[str]:
    """What differs from the histories of the device plugins; nothing for those.

    Args:
        histories: what was read.
        window: the time that was looked back, as it was given.
    """
    if histories.source is not HistorySource.PROMETHEUS:
        return []
    step = _minutes(histories.step_seconds)
    sentence = (
        f"measured by Prometheus in {window}, with one sample every {step}; peaks, starts and"
        " out-of-memory events are those that the device plugins recorded, also between samples"
    )
    return [sentence]


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"
