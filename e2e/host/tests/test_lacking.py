"""What this machine lacks: a skip with the reason, but in CI a failure."""

import pytest

from host.errors import SetupError
from host.testing.lacking import lacking

REASON = SetupError("no such package")


def test_a_test_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of a contributor."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no registry: no such package"):
        lacking("no registry", REASON)


@pytest.mark.parametrize("value", ["true", "1", "True"])
def test_nothing_may_be_missing_in_ci(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip there would hide that nothing was tested."""
    monkeypatch.setenv("CI", value)
    with pytest.raises(SetupError, match="no such package"):
        lacking("no registry", REASON)
