"""Installing into the cluster's own scheduler, step by step: order, waits, file modes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinspect.controlplane import cluster, manifest
from gpuinspect.controlplane.files import Files, carry_out
from gpuinspect.controlplane.plan import BACKUP, MANIFEST, ChangePlan, FileChange
from gpuinspect.errors import ControlPlaneError
from gpukube.errors import InvalidReplyError, UnreachableError

OURS = "/etc/kubernetes/gpushare/scheduler-abc.yaml"


class Clock:
    """A clock that advances only by sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(cluster.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(cluster.time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Waits take no time."""
    return Clock(monkeypatch)


def mirror(*words: str, ready: bool = True, **status: Any) -> dict[str, Any]:
    """The mirror of the static pod."""
    found = {"ready": ready, **status}
    return {
        "spec": {"containers": [{"command": ["kube-scheduler", *words]}]},
        "status": {"containerStatuses": [found]},
    }


class Kube:
    """Replies with what the test wrote down; the last reply again and again."""

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.paths: list[str] = []

    def get(self, path: str) -> bytes:
        self.paths.append(path)
        found = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(found, Exception):
            raise found
        return cluster.json.dumps(found).encode()


def wait(kube: Kube, config: str = OURS, *, seconds: float = 60.0) -> None:
    """Wait for the scheduler of the node ``m``."""
    cluster.wait_running(kube, "m", config, seconds=seconds)  # type: ignore[arg-type]


def test_a_scheduler_must_stay_ready_for_a_while(clock: Clock) -> None:
    """One that dies of its configuration does so within seconds."""
    kube = Kube(mirror(f"--config={OURS}"))
    wait(kube)
    assert clock.now == 100.0 + cluster.STEADY_SECONDS
    assert cluster.STEADY_SECONDS == 5.0
    assert set(kube.paths) == {"/api/v1/namespaces/kube-system/pods/kube-scheduler-m"}


def test_the_while_begins_anew_after_a_failure(clock: Clock) -> None:
    """Three seconds, a restart, and then the whole time again."""
    good, bad = mirror(f"--config={OURS}"), mirror(f"--config={OURS}", ready=False)
    wait(Kube(good, good, good, bad, good))
    assert clock.now == 100.0 + 4 + cluster.STEADY_SECONDS


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (UnreachableError("none"), "kubelet has not reported kube-scheduler to the API server"),
        (InvalidReplyError("away"), "kubelet has not reported kube-scheduler to the API server"),
        (mirror("--config=/etc/other.yaml"), "kubelet has not started the new manifest"),
        (mirror(), "kubelet has not started the new manifest"),
        (
            mirror(f"--config={OURS}", f"--config={OURS}"),
            "kubelet has not started the new manifest",
        ),
        (
            mirror(f"--config={OURS}", ready=False, state={"waiting": {"reason": "Crash"}}),
            'kube-scheduler does not run: {"reason": "Crash"}',
        ),
        (
            mirror(f"--config={OURS}", ready=False, lastState={"terminated": {"exitCode": 1}}),
            'kube-scheduler does not run: {"terminated": {"exitCode": 1}}',
        ),
        (
            {"spec": mirror(f"--config={OURS}")["spec"], "status": {}},
            "kube-scheduler does not run: {}",
        ),
    ],
)
def test_what_is_missing_is_reported_at_the_end(clock: Clock, reply: Any, sentence: str) -> None:
    """After the time that was given, not before."""
    with pytest.raises(ControlPlaneError) as caught:
        wait(Kube(reply), seconds=10)
    assert str(caught.value) == sentence
    assert clock.now == 110.0


def test_too_short_a_time_is_reported(clock: Clock) -> None:
    """The pod runs, but not yet for the required time."""
    with pytest.raises(ControlPlaneError, match="not run for long enough"):
        wait(Kube(mirror(f"--config={OURS}")), seconds=3)


def test_after_an_uninstall_no_configuration_of_ours_is_left(clock: Clock) -> None:
    """Another one may be."""
    wait(Kube(mirror("--config=/etc/other.yaml")), "")
    with pytest.raises(ControlPlaneError, match="has not started"):
        wait(Kube(mirror(f"--config={OURS}")), "", seconds=1)


def test_arguments_count_like_the_command(clock: Clock) -> None:
    """A manifest may have its flags in either."""
    found = mirror()
    found["spec"]["containers"][0]["args"] = [f"--config={OURS}"]
    wait(Kube(found))


class Recorder:
    """Files that only record what is written; one path can fail."""

    def __init__(self, fails: str = "") -> None:
        self.steps: list[tuple[str, str | None]] = []
        self._fails = fails

    def write(self, change: FileChange) -> None:
        if change.path == self._fails:
            raise ControlPlaneError("cannot write")
        self.steps.append((change.path, change.after))

    def tidy(self, *, keep: str) -> None:
        self.steps.append(("tidy", keep))


PLAN = ChangePlan(
    (FileChange("a", None, "A"), FileChange("b", "old", "B"), FileChange("c", "1", "2")), OURS
)


def carried(files: Recorder, *errors: Exception | None, before: str = "") -> Any:
    """Carry out a plan with a scheduler that answers so; the requests it got."""
    waited: list[str] = []
    left = list(errors)

    def wait_for(config: str) -> None:
        waited.append(config)
        if left and (error := left.pop(0)):
            raise error

    try:
        carry_out(PLAN, files, wait_for, before=before)  # type: ignore[arg-type]
    except ControlPlaneError as error:
        return waited, str(error)
    return waited, ""


def test_changes_are_made_in_order_and_tidied_after() -> None:
    """The manifest comes last: kubelet must find the configuration."""
    files = Recorder()
    assert carried(files) == ([OURS], "")
    assert files.steps == [("a", "A"), ("b", "B"), ("c", "2"), ("tidy", OURS)]


def test_a_failure_is_undone_in_reverse() -> None:
    """The manifest first, so that it never names a file that is gone; then it is waited for."""
    files = Recorder()
    waited, error = carried(files, ControlPlaneError("crash"), before="/old")
    assert (waited, error) == ([OURS, "/old"], "crash")
    assert files.steps[3:] == [("c", "1"), ("b", "old"), ("a", None)]


def test_a_write_that_fails_undoes_what_was_written() -> None:
    """And nothing else."""
    files = Recorder(fails="b")
    waited, error = carried(files, before="/old")
    assert (waited, error) == (["/old"], "cannot write")
    assert files.steps == [("a", "A"), ("a", None)]
    files = Recorder(fails="a")
    assert carried(files) == ([], "cannot write")
    assert files.steps == []


def test_a_second_failure_is_the_worse_news() -> None:
    """The scheduler does not run with the old manifest either."""
    _, error = carried(Recorder(), ControlPlaneError("one"), ControlPlaneError("two"))
    assert error == "the manifest was restored, but two"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The root folder of a node with a manifest, whatever the mask of who runs the tests."""
    mask = os.umask(0o022)
    path = tmp_path / MANIFEST[1:]
    path.parent.mkdir(parents=True)
    path.write_text("old")
    yield tmp_path
    os.umask(mask)


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return path.stat().st_mode & 0o777


def test_new_files_are_for_root_alone_and_old_ones_stay_as_they_were(root: Path) -> None:
    """A configuration holds a private key; kubelet's manifest may be readable to others."""
    files = Files(root)
    files.write(FileChange(OURS, None, "key"))
    path = root / OURS[1:]
    assert (path.read_text(), mode(path), mode(path.parent)) == ("key", 0o600, 0o700)
    present = root / MANIFEST[1:]
    present.chmod(0o640)
    files.write(FileChange(MANIFEST, "old", "new"))
    assert (present.read_text(), mode(present)) == ("new", 0o640)
    assert [each.name for each in present.parent.iterdir()] == [present.name]


def test_tidying_keeps_what_is_in_use(root: Path) -> None:
    """Older configurations go; without one in use the folder goes too."""
    files = Files(root)
    for path in (OURS, OURS.replace("abc", "def"), BACKUP):
        files.write(FileChange(path, None, "x"))
    folder = root / manifest.FOLDER[1:]
    (folder / "notes.txt").write_text("of somebody")
    files.tidy(keep=OURS)
    assert sorted(each.name for each in folder.iterdir()) == [
        "kube-scheduler.yaml",
        "notes.txt",
        "scheduler-abc.yaml",
    ]
    files.tidy(keep="")
    assert [each.name for each in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    files.tidy(keep="")
    assert not folder.exists()


def test_the_name_of_the_node_is_that_of_kubelet(root: Path) -> None:
    """In lower case and without the line's end; the machine's own where there is no file."""
    assert Files(root).hostname() == os.uname().nodename.lower()
    (root / "etc/hostname").write_text("Master-0\n")
    assert Files(root).hostname() == "master-0"


def test_admin_credentials_are_those_of_the_node(root: Path) -> None:
    """Where kubeadm left them."""
    assert Files(root).admin() is None
    path = root / "etc/kubernetes/admin.conf"
    path.write_text("x")
    assert Files(root).admin() == path
