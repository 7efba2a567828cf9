"""Only pods that were asked to go and have ended are taken away, each by its own uid."""

import json
from pathlib import Path

import pytest

from environments.endedpods import Ended, EndedPods, ended
from environments.kubectl import Kubectl
from environments.waiting import until

SECONDS = 60
ASKED = "2026-11-21T19:00:00Z"
FAKE = """\
#!/bin/sh
case "$1" in
  get) echo watch >> '{folder}/watches'; cat '{folder}/lines' ;;
  delete) echo "$3 $(cat)" >> '{folder}/deletes' ;;
esac
"""


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        pytest.param("case|a|u1||c0|", False, id="runs"),
        pytest.param("case|a|u1||c0|0", False, id="ended by itself"),
        pytest.param(f"case|a|u1|{ASKED}|c0|", False, id="is ending"),
        pytest.param(f"case|a|u1|{ASKED}|c0 c1|0", False, id="one container runs on"),
        pytest.param(f"case|a|u1|{ASKED}|c0 c1|0 137", True, id="has ended"),
    ],
)
def test_a_pod_counts_once_it_was_asked_to_go_and_all_its_containers_have_ended(
    line: str, gone: bool
) -> None:
    """One that ended unasked stays, as does one with a container that still runs."""
    assert ended(line) == (Ended("case", "a", "u1") if gone else None)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """A program that tells of the lines in a file and notes what it is to delete."""
    program = tmp_path / "kubectl"
    program.write_text(FAKE.format(folder=tmp_path))
    program.chmod(0o755)
    return Kubectl(program, tmp_path / "kubeconfig")


def read(path: Path) -> list[str]:
    """Its lines; none while there is no such file."""
    return path.read_text().splitlines() if path.exists() else []


def test_a_pod_that_has_ended_is_taken_away_by_its_uid_and_no_other_is(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """At once, and only that very pod: one of the same name that came since has another uid."""
    (tmp_path / "lines").write_text(f"case|runs|u1||c0|\ncase|gone|u2|{ASKED}|c0|0\n")
    pods = EndedPods(kubectl)
    pods.start()
    (first, *_) = until("a deletion", lambda: read(tmp_path / "deletes"), seconds=SECONDS)
    pods.stop()
    path, _, options = first.partition(" ")
    assert path == "/api/v1/namespaces/case/pods/gone"
    assert json.loads(options)["preconditions"] == {"uid": "u2"}
    assert json.loads(options)["gracePeriodSeconds"] == 0
    assert not [each for each in read(tmp_path / "deletes") if "runs" in each]


def test_a_watch_that_ends_is_begun_anew_until_it_is_stopped(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """The API server may end a watch, or be away for a while."""
    (tmp_path / "lines").write_text("")
    pods = EndedPods(kubectl)
    pods.start()
    until("a second watch", lambda: len(read(tmp_path / "watches")) >= 2, seconds=SECONDS)
    pods.stop()
    assert not pods.alive
