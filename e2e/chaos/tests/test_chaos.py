"""Kills at random on real processes: the short form of ``make chaos``."""

import pytest

from chaos.__main__ import chaos
from chaos.report import text
from host.errors import SetupError
from host.testing.lacking import lacking

KILLS = 20
SEED = 20
STALLING_SECONDS = 60.0
"""Beside other stages, on a machine that may stall; ``make chaos`` demands ten."""


@pytest.mark.e2e
@pytest.mark.timeout(900)
async def test_twenty_kills_lose_no_pod_and_overfill_no_gpu() -> None:
    """Whatever is killed, a new pod runs soon and the accounts stay equal."""
    try:
        run = await chaos(SEED, KILLS, minutes=10, recovery_s=STALLING_SECONDS)
    except SetupError as reason:
        lacking("no control plane", reason)
    print(text(run))
    assert len(run.rounds) == KILLS
    assert run.created > KILLS
    assert run.violations == []
