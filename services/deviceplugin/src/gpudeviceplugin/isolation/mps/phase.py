"""The phases of an MPS daemon, for those that need nothing else of it."""

from enum import StrEnum


class MpsDaemonPhase(StrEnum):
    """The phase of the daemon of a GPU."""

    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"
