"""Only pods that were deleted and have ended are taken away, each by its own uid."""

import json
from pathlib import Path
from typing import Any

import pytest

from environments.endedpods import EndedPods
from environments.kubectl import Kubectl
from host.waiting import until

SECONDS = 60
DELETED = "2026-11-21T19:00:00Z"
GONE = [f"|{DELETED}|c0||0"]
PODS = "/api/v1/namespaces/case/pods"
FAKE = """\
#!/bin/sh
case "$1" in
  get) echo watch >> '{folder}/watches'; cat '{folder}/lines' ;;
  delete) echo "$3 $(cat)" >> '{folder}/deletes' ;;
esac
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """A program that prints the lines of a file and notes what it is to delete."""
    program = tmp_path / "kubectl"
    program.write_text(FAKE.format(folder=tmp_path))
    program.chmod(0o755)
    return Kubectl(program, tmp_path / "kubeconfig")


def read(path: Path) -> list[str]:
    """Its lines; none while there is no such file."""
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "reported",
    [
        pytest.param(["||c0|%s|"], id="runs"),
        pytest.param(["||c0||0"], id="ended by itself"),
        pytest.param([f"|{DELETED}|c0|%s|"], id="is ending"),
        pytest.param([f"|{DELETED}|c0 c1|%s|0"], id="one container runs on"),
        pytest.param([f"|{DELETED}|c0||"], id="may be starting"),
    ],
)
def test_a_pod_that_may_run_or_was_not_deleted_stays(
    kubectl: Kubectl, tmp_path: Path, reported: list[str]
) -> None:
    """Only what comes after it in the same watch is taken away."""
    assert follow(kubectl, tmp_path, lines("stays", reported)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "reported",
    [
        pytest.param([f"|{DELETED}|c0 c1||0 137"], id="reported as ended"),
        pytest.param(["||c0|%s|", f"|{DELETED}|c0||"], id="ran, and is not there any more"),
    ],
)
def test_a_pod_that_has_ended_is_taken_away_by_its_uid(
    kubectl: Kubectl, tmp_path: Path, reported: list[str]
) -> None:
    """Once, and only that very pod: one of the same name that came since has another uid."""
    ((path, options),) = follow(kubectl, tmp_path, lines("gone", [*reported, reported[-1]]))
    assert path == f"{PODS}/gone"
    assert options["preconditions"] == {"uid": "uid-of-gone"}
    assert options["gracePeriodSeconds"] == 0


def lines(name: str, reported: list[str]) -> list[str]:
    """What a watch reports of a pod."""
    return [f"case|{name}|uid-of-{name}{each.replace('%s', DELETED)}" for each in reported]


def follow(kubectl: Kubectl, folder: Path, reported: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """What was deleted, with its options, until all reported lines were seen."""
    reported = [*reported, *lines("last", GONE)]
    (folder / "lines").write_text("".join(f"{line}\n" for line in reported))
    pods = EndedPods(kubectl)
    pods.start()
    until(
        "the end of the watch", lambda: f"{PODS}/last" in dict(deletions(folder)), seconds=SECONDS
    )
    pods.stop()
    return [(path, options) for path, options in deletions(folder) if path != f"{PODS}/last"]


def deletions(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Paths that were deleted so far, with the options."""
    parts = (line.partition(" ") for line in read(folder / "deletes"))
    return [(path, json.loads(options)) for path, _, options in parts]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cut", ["case|stays|uid-of-stays|", f"case|gone|uid-of-gone|{DELETED}|c0||1"]
)
def test_a_line_that_is_cut_off_is_no_report(kubectl: Kubectl, tmp_path: Path, cut: str) -> None:
    """Kubectl was ended while it wrote: the next watch reports all pods again."""
    (tmp_path / "lines").write_text(cut)
    pods = EndedPods(kubectl)
    pods.start()
    until("a second watch", lambda: len(read(tmp_path / "watches")) >= 2, seconds=SECONDS)
    pods.stop()
    assert deletions(tmp_path) == []


@pytest.mark.slow
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
