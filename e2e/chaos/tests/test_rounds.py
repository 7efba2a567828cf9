"""When a recovery was too slow."""

import inspect

from chaos.__main__ import chaos
from chaos.rounds import RECOVERY_SECONDS, RoundResult, late


def test_a_recovery_that_takes_longer_than_the_maximum_is_a_fault() -> None:
    """The sentence has the time without the API server, which does not count."""
    found = RoundResult(["extender"], seconds=12.34)
    assert late(found, 60.0) == []
    assert late(found, 10.0) == ["recovered after 12.3 s"]
    found.api_seconds = 4.0
    assert late(found, 10.0) == ["recovered after 12.3 s, the API server was away for 4.0 s"]


def test_make_chaos_demands_ten_seconds() -> None:
    """Only the case, which other work runs beside, has more."""
    assert inspect.signature(chaos).parameters["recovery_s"].default == RECOVERY_SECONDS == 10.0
