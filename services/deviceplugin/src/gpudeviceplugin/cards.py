"""What the driver tells about the cards, and the port behind which it is asked.

Plain values without a word of NVML in them. Every method of the port may block: callers keep it
off the event loop (:mod:`gpudeviceplugin.driver`).

    DriverError
    ├── DriverUnavailableError   no library, no driver, no permission: nothing can be asked at all
    └── CardLostError            one card does not answer; the others do
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class DriverError(Exception):
    """The driver did not answer what was asked."""


class DriverUnavailableError(DriverError):
    """There is no driver to ask; the message says what is missing."""


class CardLostError(DriverError):
    """The card does not answer any more."""


class Instance(msgspec.Struct, frozen=True):
    """A MIG instance of a card: its slot there, identity and memory as :class:`Card` has it."""

    slot: int
    uuid: str
    model: str
    memory_mib: int
    reserved_mib: int = -1


class Card(msgspec.Struct, frozen=True):
    """One physical card.

    Attributes:
        index: position in the driver's enumeration.
        minor: number of ``/dev/nvidia<minor>``; -1 unknown.
        numa: NUMA node of the host; -1 unknown.
        mig: the card is in MIG mode: only its instances can be used.
        slots: instances the card could have at most.
        capability: compute capability; ``(0, 0)`` unknown.
        memory_mib: total memory in MiB.
        reserved_mib: memory in MiB that the driver keeps for itself; -1 unknown.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    minor: int = -1
    numa: int = -1
    mig: bool = False
    slots: int = 0
    instances: tuple[Instance, ...] = ()
    capability: tuple[int, int] = (0, 0)
    reserved_mib: int = -1


class Machine(msgspec.Struct, frozen=True):
    """All that is fixed about a node's cards.

    Attributes:
        cards: those that answered, by index.
        silent: indexes of cards that did not.
        links: ``"0-1" -> ("PIX", "NV2")``.
    """

    driver: str
    cards: tuple[Card, ...]
    silent: tuple[int, ...] = ()
    links: Mapping[str, tuple[str, ...]] = {}


class Process(msgspec.Struct, frozen=True):
    """A process with memory on a card.

    Attributes:
        pid: of the host.
        used_bytes: 0 where the driver does not tell.
        mps: it is a client of an MPS daemon; ``None`` where the driver does not tell.
    """

    pid: int
    used_bytes: int
    mps: bool | None = None


class Usage(msgspec.Struct, frozen=True):
    """Bytes of a card, and who uses them."""

    total_bytes: int
    used_bytes: int
    processes: tuple[Process, ...]


class Xid(msgspec.Struct, frozen=True):
    """An error event of a card; an empty uuid is an event of no particular card."""

    code: int
    uuid: str


class Driver(Protocol):
    """The questions this plugin asks. Safe for several threads once :meth:`open` has returned."""

    def open(self) -> None:
        """Start a connection. Raises DriverUnavailableError."""

    def close(self) -> None:
        """End the connection; harmless without one."""

    def machine(self) -> Machine:
        """Enumerate the cards. Raises DriverUnavailableError."""

    def probe(self, uuid: str) -> None:
        """Touch one card. Raises CardLostError."""

    def usage(self, uuid: str) -> Usage:
        """Who uses the memory of one card. Raises CardLostError."""

    def resubscribe(self) -> None:
        """Let the next wait take events of cards that came back. Never blocks."""

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """Wait for an error event. Raises DriverError where events are not offered."""
