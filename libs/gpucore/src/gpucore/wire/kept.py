"""Readings that are kept, so that the thousands of pods of one template are read once.

A tenant writes what is read, of any length, in pods that it deletes again. Only what is small is
kept, so that memory is bounded in bytes and not in readings alone.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar, cast

KEPT: Final = 4096
"""Readings of one kind that are kept."""
KEPT_LENGTH: Final = 1024
"""Characters of the texts of one reading that is kept; ordinary pods have a few dozen."""
F = TypeVar("F", bound=Callable[..., object])


class _TooLargeError(Exception):
    """``lru_cache`` keeps no call that raises."""


def kept_where(small: Callable[..., bool]) -> Callable[[F], F]:
    """A function whose results are kept, by its arguments, which are positional.

    Args:
        small: whether these arguments may be kept.
    """

    def decorated(read: F) -> F:
        @lru_cache(KEPT)
        def read_small(*arguments: Any) -> object:
            if not small(*arguments):
                raise _TooLargeError
            return read(*arguments)

        @wraps(read)
        def read_any(*arguments: Any) -> object:
            try:
                return read_small(*arguments)
            except _TooLargeError:
                return read(*arguments)

        return cast("F", read_any)

    return decorated
