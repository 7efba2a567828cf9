"""Fixtures that the cases of claims share."""

from collections.abc import Iterator

import pytest

from environments import claimoffer
from environments.kind import KindEnvironment


@pytest.fixture(scope="module")
def offering(environment: KindEnvironment) -> Iterator[KindEnvironment]:
    """The stack with claims enabled, on nodes that offer claims; as before afterwards."""
    with claimoffer.offered(environment):
        yield environment


@pytest.fixture
def nothing_allocated(offering: KindEnvironment) -> None:
    """The claims of earlier cases are gone: their namespaces go in their own time."""
    claimoffer.wait_unused(offering)
