"""A cluster for one case alone, where the others could not use it afterwards."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from environments.kind import MACHINES, KindEnvironment


@contextmanager
def own_cluster(name: str, workers: Sequence[str] = MACHINES) -> Iterator[KindEnvironment]:
    """A new cluster with the stack on it; removed at the end, also where it did not come up.

    Raises:
        UnavailableError: this machine lacks something; the sentence states what.
    """
    world = KindEnvironment(name, workers, reuse=False)
    try:
        world.start()
        yield world
    finally:
        world.stop()
