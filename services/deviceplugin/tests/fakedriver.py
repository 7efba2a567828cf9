"""Cards that a test can break: the driver's port without a driver."""

import queue
import threading

from gpudeviceplugin.cards import (
    Card,
    CardLostError,
    DriverError,
    DriverUnavailableError,
    Machine,
    Usage,
    Xid,
)


def t4(index: int, *, memory_mib: int = 16130) -> Card:
    """A card of 15 units."""
    uuid = f"GPU-00000000-0000-0000-0000-00000000000{index}"
    return Card(index, uuid, "Tesla T4", memory_mib, minor=index, numa=index % 2)


class FakeDriver:
    """A driver whose cards a test changes.

    Attributes:
        lost: uuids of cards that do not answer.
        absent: there is no driver.
    """

    def __init__(self, *cards: Card) -> None:
        self.cards = cards
        self.lost: set[str] = set()
        self.absent = False
        self.block = threading.Event()
        self.block.set()
        self.usages: dict[str, Usage] = {}
        self.xids: queue.Queue[Xid] = queue.Queue()
        self.probes = 0
        self._deaf: set[str] = set()

    def open(self) -> None:
        """Raises while there is no driver; so does every question."""
        if self.absent:
            raise DriverUnavailableError("no driver")

    def close(self) -> None:
        self.block.set()

    def machine(self) -> Machine:
        self.open()
        there = tuple(card for card in self.cards if card.uuid not in self.lost)
        silent = tuple(card.index for card in self.cards if card.uuid in self.lost)
        pairs = [(a.index, b.index) for a in there for b in there if a.index < b.index]
        return Machine("535.1", there, silent, {f"{a}-{b}": ("SYS",) for a, b in pairs})

    def probe(self, uuid: str) -> None:
        self.probes += 1
        self.block.wait(30)
        self.open()
        if uuid in self.lost:
            raise CardLostError(f"{uuid} is lost")

    def usage(self, uuid: str) -> Usage:
        self.probe(uuid)
        if uuid not in self.usages:
            raise DriverError("not told")
        return self.usages[uuid]

    def resubscribe(self) -> None:
        """Cards that came back are in the event set again."""
        self._deaf = set(self.lost)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """As with NVML, a card that was lost tells nothing until somebody subscribes anew."""
        self._deaf |= self.lost
        try:
            event = self.xids.get(timeout=min(timeout_ms, 50) / 1000)
        except queue.Empty:
            return None
        return None if event.uuid in self._deaf else event
