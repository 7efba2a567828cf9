"""Takes items in a thread of its own, ahead of who uses them.

The next pages of a list arrive while the objects of earlier ones are decoded.
"""

import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class _End(msgspec.Struct, frozen=True):
    """There are no more items, because all were taken or because of an error."""

    error: BaseException | None = None


class ReadAhead(Generic[T]):
    """The items of an iterable, once; its error is raised in its place among them.

    The thread starts at once and does not keep a program alive that ends early, as at Ctrl-C.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._taken: SimpleQueue[T | _End] = SimpleQueue()
        threading.Thread(target=self._take, args=(items,), daemon=True).start()

    def _take(self, items: Iterable[T]) -> None:
        try:
            for item in items:
                self._taken.put(item)
        except BaseException as error:  # noqa: BLE001 - raised again where the items are used
            self._taken.put(_End(error))
        else:
            self._taken.put(_End())

    def __iter__(self) -> Iterator[T]:
        while True:
            item = self._taken.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is None:
                return
            else:
                raise item.error
