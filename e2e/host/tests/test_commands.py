"""A program that fails is reported with its name, its status and its last words."""

import sys
from pathlib import Path

import pytest

from host.commands import run_command, succeeds
from host.errors import SetupError


def test_standard_output_is_returned_and_standard_input_is_given() -> None:
    """Text goes in and out; without text the program sees the end of its input at once."""
    echo = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"]
    assert run_command(echo, timeout_s=30, stdin="abc") == "ABC\n"
    assert run_command(echo, timeout_s=30) == "\n"


def test_a_failure_carries_the_status_and_the_tail() -> None:
    """Only the last lines of a long output are shown, errors last."""
    script = "import sys\nfor n in range(50): print('line', n)\nsys.exit('it broke')"
    with pytest.raises(SetupError) as caught:
        run_command([sys.executable, "-c", script], timeout_s=30)
    text = str(caught.value)
    assert "exited 1" in text
    assert text.endswith("it broke")
    assert "line 49" in text
    assert "line 10\n" not in text


def test_a_missing_program_is_named() -> None:
    """The sentence states which program is not installed."""
    with pytest.raises(SetupError, match="`no-such-program` is not installed"):
        run_command(["no-such-program"], timeout_s=5)


def test_a_program_that_this_user_may_not_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is where PATH has a folder that only another user may read."""
    (tmp_path / "locked-program").touch(mode=0o600)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="`locked-program` is not installed"):
        run_command(["locked-program"], timeout_s=5)


@pytest.mark.slow
def test_a_program_that_overruns_is_ended_and_named() -> None:
    """The deadline is part of the sentence, and the test itself does not wait the hour."""
    script = "import time; time.sleep(3600)"
    with pytest.raises(SetupError, match=r"did not end within 0\.2 s"):
        run_command([sys.executable, "-c", script], timeout_s=0.2)


def test_succeeds_never_raises() -> None:
    """Missing, failing and well-ending programs give False, False and True."""
    assert not succeeds(["no-such-program"], timeout_s=5)
    assert not succeeds([sys.executable, "-c", "raise SystemExit(3)"], timeout_s=30)
    assert succeeds([sys.executable, "-c", ""], timeout_s=30)
