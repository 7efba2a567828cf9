"""daemon.json gains our runtime and keeps everything else."""

import json
from pathlib import Path

import pytest

from cluster.daemonconfig import RUNTIME, with_runtime
from host.errors import SetupError

WRAPPER = Path("/opt/wrapper")
SOURCE = Path("/etc/docker/daemon.json")


def edited(text: str) -> dict[str, object]:
    return json.loads(with_runtime(text, wrapper=WRAPPER, source=SOURCE))  # type: ignore[no-any-return]


def test_a_missing_file_becomes_one_with_the_runtime_as_default() -> None:
    """Without a daemon.json the text names the wrapper and makes it the default runtime."""
    assert edited("") == {
        "default-runtime": RUNTIME,
        "runtimes": {RUNTIME: {"path": str(WRAPPER)}},
    }


def test_what_the_owner_wrote_stays() -> None:
    """Other settings and other runtimes survive the merge."""
    owner = {"log-driver": "journald", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
    merged = edited(json.dumps(owner))
    assert merged["log-driver"] == "journald"
    assert merged["runtimes"] == {**owner["runtimes"], RUNTIME: {"path": str(WRAPPER)}}  # type: ignore[dict-item]


def test_a_second_merge_changes_nothing() -> None:
    """The merge is idempotent, so a second run need not restart the daemon."""
    once = with_runtime('{"debug": true}', wrapper=WRAPPER, source=SOURCE)
    assert with_runtime(once, wrapper=WRAPPER, source=SOURCE) == once


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"default-runtime": "nvidia"}', "already sets its own default runtime .nvidia."),
        ('{"runtimes": []}', "the key runtimes"),
        ("{,}", "is not valid JSON"),
        ("[]", "holds no JSON object"),
    ],
)
def test_a_conflict_is_refused_by_name(text: str, reason: str) -> None:
    """A file that cannot be merged is named with the reason, never overwritten."""
    with pytest.raises(SetupError, match=f"(?=.*{SOURCE}).*{reason}"):
        edited(text)
