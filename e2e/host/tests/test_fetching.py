"""A download is tried again where the network failed, and not where the registry refused."""

import pytest

from host.errors import SetupError
from host.fetching import PAUSES_S, with_retries

SLOW = "`go mod download` exited 1:\n  dial tcp: i/o timeout"
PROXY = '`go mod download` exited 1:\n  Get "https://registry/x": Service Unavailable'
DOWN = "`apt-get update` exited 100:\n  E: Failed to fetch Packages 503 Service Unavailable"


class Registry:
    """Fails with these errors, then answers."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.pauses: list[float] = []

    def fetch(self) -> str:
        if self.errors:
            raise SetupError(self.errors.pop(0))
        return "package"


def test_a_registry_that_fails_once_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is shown while it waits."""
    registry = Registry(SLOW, DOWN, PROXY)
    assert with_retries(registry.fetch, pause=registry.pauses.append) == "package"
    assert registry.pauses == list(PAUSES_S)
    assert "tried again in 2 s: dial tcp: i/o timeout" in capsys.readouterr().err


def test_a_registry_that_stays_away_is_an_error_in_the_end() -> None:
    registry = Registry(*[SLOW] * 9)
    with pytest.raises(SetupError, match="i/o timeout"):
        with_retries(registry.fetch, pause=registry.pauses.append)
    assert registry.pauses == list(PAUSES_S)


@pytest.mark.parametrize("refusal", ["403 Forbidden", "404 Not Found", "no matching distribution"])
def test_a_refusal_is_final(refusal: str) -> None:
    registry = Registry(refusal)
    with pytest.raises(SetupError, match=refusal):
        with_retries(registry.fetch, pause=registry.pauses.append)
    assert registry.pauses == []
