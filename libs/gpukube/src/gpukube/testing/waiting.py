"""Waiting for conditions in tests, with a deadline."""

import asyncio
from collections.abc import Callable

WAIT_SECONDS = 120
"""Ends a test that has failed; a busy machine may need many of them."""


async def until(what: str, true: Callable[[], object], *, seconds: float = WAIT_SECONDS) -> None:
    """Wait for a condition that something else brings about."""
    try:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - conditions are any, and have no event
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None
