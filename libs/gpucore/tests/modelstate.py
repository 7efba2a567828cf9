"""The state of the small model: what API server, kubelets and schedulers each have, and no more.

A state is a sorted tuple of columns, one a pod, so states that differ only in the names of equal
pods are one state. Processes keep nothing but what is here: that is what a crash can lose.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

UNBOUND_GPU: Final = -1


class Spot(NamedTuple):
    """A GPU of a node."""

    node: str
    gpu: int


class Object(NamedTuple):
    """The pod as the API server has it.

    Attributes:
        spot: node, and the GPU its annotations name; ``None`` while it is unbound.
        assigned: the annotations say that the node has handed the GPU out.
        phase: ``live``, ``terminating``, ``failed`` or ``gone``.
    """

    spot: Spot | None = None
    assigned: bool = False
    phase: str = "live"


class View(NamedTuple):
    """The pod as one scheduler believes it to be.

    Attributes:
        seen: what its watch delivered since it started, as far as it could matter: the last
            object, and the one before where the GPU changed.
        assumed: what it reserved and nobody confirmed yet.
    """

    seen: tuple[Object, ...] = ()
    assumed: Spot | None = None

    def after(self, current: Object) -> "View":
        """Once the watch has delivered ``current``."""
        moved = self.seen and self.seen[-1].spot != current.spot
        return View((*self.seen[-1:], current) if moved else (current,))


class Column(NamedTuple):
    """Everything about one pod.

    Attributes:
        held: GPU in the checkpoint of its node's kubelet; ``UNBOUND_GPU`` if none.
        views: one a scheduler.
    """

    size: int
    api: Object
    held: int
    views: tuple[View, ...]


State = tuple[Column, ...]


class World(NamedTuple):
    """The fixed part of a model.

    Attributes:
        nodes: node to the size of each of its GPUs.
        pods: size of each pod.
        schedulers: replicas that decide at the same time.
        deletes: how many pods a user deletes.
    """

    nodes: dict[str, tuple[int, ...]]
    pods: tuple[int, ...]
    schedulers: int
    deletes: int = 0

    def start(self) -> State:
        """Nothing is bound and nobody has seen anything."""
        views = (View(),) * self.schedulers
        return canonical(Column(size, Object(), UNBOUND_GPU, views) for size in self.pods)

    def room(self, state: State, spot: Spot) -> int:
        """Units left on a GPU by the checkpoint of its kubelet, which cannot be argued with."""
        used = sum(c.size for c in state if c.held >= 0 and c.api.spot
                   and (c.api.spot.node, c.held) == spot)  # fmt: skip
        return self.nodes[spot.node][spot.gpu] - used


class _Columns:
    """Columns by number, in the order they were first met: numbers sort and compare fast."""

    def __init__(self) -> None:
        self._numbers: dict[Column, int] = {}
        self._columns: list[Column] = []
        self._mirrored: list[int | None] = []

    def number(self, column: Column) -> int:
        """The number of a column."""
        number = self._numbers.setdefault(column, len(self._columns))
        if number == len(self._columns):
            self._columns.append(column)
            self._mirrored.append(None)
        return number

    def mirrored(self, number: int) -> int:
        """The number of the column with its schedulers in the other order."""
        known = self._mirrored[number]
        if known is None:
            column = self._columns[number]
            known = self.number(column._replace(views=column.views[::-1]))
            self._mirrored[number] = known
        return known

    def state(self, numbers: list[int]) -> State:
        """The columns of these numbers."""
        return tuple(self._columns[number] for number in numbers)


_COLUMNS = _Columns()


def canonical(columns: Iterable[Column]) -> State:
    """The one state of all orders of equal pods and equal schedulers."""
    numbers = sorted(map(_COLUMNS.number, columns))
    return _COLUMNS.state(min(numbers, sorted(map(_COLUMNS.mirrored, numbers))))
