"""Why the node hands nothing out: a value that becomes one gRPC error with one sentence.

kubelet shows the sentence in the status of the pod, so it says what is wrong in the user's words.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from gpucore.units import GpuIndex


class DenialCode(StrEnum):
    """The reasons, as they are counted in metrics."""

    UNKNOWN_DEVICE = "UnknownDevice"
    UNHEALTHY = "Unhealthy"
    SPANS_CARDS = "SpansCards"
    SPLITS_POD = "SplitsPod"
    TAKEN_WHOLE = "TakenWhole"
    SHARED_CARD = "SharedCard"
    NO_CARD_FITS = "NoCardFits"
    RUNG_MISSING = "RungMissing"
    MAX_PODS = "MaxPods"
    DEVICE_IN_USE = "DeviceInUse"
    NO_CDI_FILE = "NoCdiFile"


class Denial(msgspec.Struct, frozen=True):
    """A request of kubelet that must not be granted.

    Attributes:
        sentence: for the pod's status.
        cards: the cards it is about.
    """

    code: DenialCode
    sentence: str
    cards: tuple[GpuIndex, ...] = ()


def card_list(cards: Iterable[GpuIndex]) -> str:
    """``card 1``, ``cards 0 and 1``, ``cards 0, 1 and 2``."""
    names = [str(card) for card in sorted(cards)]
    if len(names) == 1:
        return f"card {names[0]}"
    return f"cards {', '.join(names[:-1])} and {names[-1]}"
