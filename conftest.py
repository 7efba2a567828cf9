"""How property tests search, and a collection without garbage collections, for every test here."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
"""Of ``make check``: few examples of each test that sets no number of its own, always the same."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collecting makes ten thousand objects, none of which is garbage before the run ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
