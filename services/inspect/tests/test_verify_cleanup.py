"""What ``gpushare verify`` leaves where it is stopped or the API server fails.

The API server is one that creates and deletes; no container runs.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run, WhatIfOutcome
from verifyingserver import VerifyingServer

from gpucore.wire.names import VERIFY_SECONDS
from gpuinspect.verify import objects
from gpuinspect.verify.objects import RunPlace
from gpuinspect.verify.site import VerifySite
from gpukube.blocking import BlockingClient
from gpukube.errors import ForbiddenError, KubeError, ServerError, UnreachableError

pytestmark = pytest.mark.timeout(120)

RESET = UnreachableError("DELETE: connection reset")
RESTARTS = ServerError("DELETE", status=503, message="shutting down")
FORBIDDEN = ForbiddenError("DELETE", status=403, message="not allowed")
FIRST_OBJECTS = 6
"""Namespace, ServiceAccount, Role, RoleBinding, Job, and the first pod."""


class StillServer(VerifyingServer):
    """A cluster whose pods run nothing, and end at once."""

    def _run(self, meta: dict[str, Any], container: dict[str, Any], own: dict[str, str]) -> None:
        (self.folder / f"{meta['name']}.log").write_text("")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits."""
    monkeypatch.setattr("gpuinspect.verify.site.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("gpuinspect.verify.site.END_SECONDS", 0.2)


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C interrupts, also where the shell of the tests has started them in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StillServer]:
    """One node with one GPU."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(16, mode="driver")])
    found = StillServer(cluster, tmp_path / "node", tmp_path)
    with found.serving():
        yield found
    found.close()


@pytest.fixture
def verify(run: Run, tmp_path: Path, server: StillServer) -> Callable[..., WhatIfOutcome]:
    """Runs the first rows."""

    def invoke(*args: str) -> WhatIfOutcome:
        kubeconfig = str(server.kubeconfig(tmp_path))
        return run("verify", "--kubeconfig", kubeconfig, "--only", "quick", *args)

    return invoke


def at_creation(number: int, do: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Do something when an object has been created, before its reply is read."""
    created, post = count(1), BlockingClient.post

    def counted(self: BlockingClient, path: str, body: Any) -> bytes:
        reply = post(self, path, body)
        if "selfsubject" not in path and next(created) == number:
            do()
        return reply

    patch.setattr(BlockingClient, "post", counted)


def failing_deletion(error: KubeError, times: int, patch: pytest.MonkeyPatch) -> None:
    """The first deletions of a namespace or a job fail."""
    tried, delete = count(1), BlockingClient.delete

    def fails(self: BlockingClient, path: str, params: Any = None) -> bytes:
        if "/pods/" not in path and next(tried) <= times:
            raise error
        return delete(self, path, params)

    patch.setattr(BlockingClient, "delete", fails)


def raising(error: BaseException) -> Callable[[], None]:
    """Raises it."""

    def does() -> None:
        raise error

    return does


def sent(number: signal.Signals) -> Callable[[], None]:
    """Sends a signal to this process, which is that of the command."""
    return lambda: os.kill(os.getpid(), number)


ENDS: dict[str, tuple[Callable[[], None], str]] = {
    "Ctrl-C": (raising(KeyboardInterrupt()), "interrupted"),
    "SIGTERM": (sent(signal.SIGTERM), "stopped by SIGTERM"),
    "SIGHUP": (sent(signal.SIGHUP), "stopped by SIGHUP"),
    "an odd object": (raising(msgspec.ValidationError("odd")), "cannot be parsed: odd"),
    "a lost reply": (raising(UnreachableError("POST: connection reset")), "connection reset"),
}
"""Ends of a run by name, and words of the message."""


def left(server: StillServer) -> list[str]:
    """The objects of runs that are still there."""
    return [path for path in server.objects if "gpushare-verify" in path]


@pytest.mark.parametrize(
    "args", [*((str(n),) for n in range(1, FIRST_OBJECTS)), ("1", "-n", "team")]
)
@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_ends_early_removes_what_it_created(
    args: tuple[str, ...],
    end: str,
    server: StillServer,
    verify: Callable[..., WhatIfOutcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it created last, and though the API server does not answer at first."""
    number, *where = args
    how, words = ENDS[end]
    at_creation(int(number), how, monkeypatch)
    failing_deletion(RESET, 2, monkeypatch)
    outcome = verify(*where)
    assert outcome.code
    assert words in " ".join(outcome.err.split())
    assert "left behind" not in outcome.err
    assert not left(server)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("args", [(str(FIRST_OBJECTS),), ("2", "-n", "team")])
def test_a_signal_while_pods_run_removes_them(
    args: tuple[str, ...],
    number: signal.Signals,
    server: StillServer,
    verify: Callable[..., WhatIfOutcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads create them: they end before the objects are removed."""
    at, *where = args
    at_creation(int(at), sent(number), monkeypatch)
    outcome = verify(*where)
    assert outcome.code
    assert "interrupted" in outcome.err or f"stopped by {number.name}" in outcome.err
    assert not left(server)


@pytest.mark.parametrize("error", [RESTARTS, FORBIDDEN])
@pytest.mark.parametrize("end", [None, *ENDS])
def test_what_is_left_is_the_last_line_with_the_command_that_deletes_it(
    error: KubeError,
    end: str | None,
    server: StillServer,
    verify: Callable[..., WhatIfOutcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server may be gone for good, or take the right away, however the run ended."""
    monkeypatch.setattr("gpuinspect.verify.site.GONE_SECONDS", 0.1)
    failing_deletion(error, 1000, monkeypatch)
    if end is not None:
        at_creation(2, ENDS[end][0], monkeypatch)
    outcome = verify()
    (namespace,) = [path for path in left(server) if path.count("/") == 4]
    last = outcome.err.splitlines()[-1]
    name = namespace.rpartition("/")[2]
    assert last == f"error: left behind, delete it: kubectl delete namespace {name}"
    assert "is removed" not in outcome.err
    assert outcome.code


def test_in_a_namespace_of_others_the_job_is_left(
    server: StillServer, verify: Callable[..., WhatIfOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods go with it; the namespace is not the run's to delete."""
    failing_deletion(FORBIDDEN, 1000, monkeypatch)
    last = verify("-n", "team").err.splitlines()[-1]
    (job,) = [path for path in server.objects if "/jobs/" in path]
    assert last.endswith(f"kubectl delete job {job.rpartition('/')[2]} -n team")


def test_a_second_ctrl_c_ends_the_removal_and_names_what_may_be_left(
    server: StillServer, verify: Callable[..., WhatIfOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user does not want to wait for an API server that is away."""
    failing_deletion(RESET, 1000, monkeypatch)
    monkeypatch.setattr("gpuinspect.verify.site.time.sleep", raising_once(KeyboardInterrupt()))
    at_creation(1, raising(KeyboardInterrupt()), monkeypatch)
    outcome = verify()
    assert outcome.code == 130
    assert "kubectl delete namespace gpushare-verify-" in outcome.err.splitlines()[-1]


def raising_once(error: BaseException) -> Callable[[float], None]:
    """A sleep that is interrupted."""

    def sleep(_: float) -> None:
        raise error

    return sleep


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_removal_does_not_cut_it_short(
    number: signal.Signals,
    server: StillServer,
    verify: Callable[..., WhatIfOutcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run is at its end already, and a pod is asked to end more than once."""
    delete = BlockingClient.delete

    def signalled(self: BlockingClient, path: str, params: Any = None) -> bytes:
        if "/pods/" not in path:
            sent(number)()
        return delete(self, path, params)

    monkeypatch.setattr(BlockingClient, "delete", signalled)
    at_creation(3, sent(number), monkeypatch)
    outcome = verify()
    assert "what was created is removed" in " ".join(outcome.err.split())
    assert not left(server)


def test_sighup_that_is_ignored_ends_no_run(
    server: StillServer, verify: Callable[..., WhatIfOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        at_creation(2, sent(signal.SIGHUP), monkeypatch)
        outcome = verify()
        assert "stopped" not in outcome.err
        assert "3 rows" in outcome.out
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("end", [None, "SIGTERM"])
def test_kept_objects_are_named_with_the_command_that_deletes_them(
    end: str | None,
    server: StillServer,
    verify: Callable[..., WhatIfOutcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With --keep the guard deletes them later; before it exists they are removed at once."""
    if end is not None:
        at_creation(FIRST_OBJECTS, ENDS[end][0], monkeypatch)
    outcome = verify("--keep")
    last = outcome.err.splitlines()[-1]
    assert last.startswith("kept until its deadline, or: kubectl delete namespace gpushare-verify-")
    assert "is removed" not in outcome.err
    assert left(server)


def test_nothing_is_kept_before_the_guard_is_there(
    server: StillServer, verify: Callable[..., WhatIfOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would delete it."""
    at_creation(2, ENDS["SIGTERM"][0], monkeypatch)
    outcome = verify("--keep")
    assert "kubectl delete" not in outcome.err
    assert not left(server)


def test_ctrl_c_waits_for_no_thread_that_the_api_server_does_not_answer(
    server: StillServer, verify: Callable[..., WhatIfOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lists may take minutes to fail, one after the other."""
    monkeypatch.setattr("gpuinspect.verify.run.STOP_SECONDS", 0.1)
    answer, answered, get = threading.Event(), threading.Event(), BlockingClient.get

    def silent(self: BlockingClient, path: str, params: Any = None) -> bytes:
        if path == "/api/v1/nodes" and threading.current_thread() is not threading.main_thread():
            sent(signal.SIGINT)()
            answer.wait(20)
            answered.set()
        return get(self, path, params)

    monkeypatch.setattr(BlockingClient, "get", silent)
    outcome = verify()
    assert not answered.is_set()
    answer.set()
    assert outcome.code == 130
    assert not left(server)


def test_a_run_that_is_stopped_reports_no_row_as_failed(
    server: StillServer, verify: Callable[..., WhatIfOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a request of a stopped run comes to says nothing about the GPU."""

    def stopped(self: VerifySite, name: str) -> Any:
        sent(signal.SIGINT)()
        self._stopped.wait(20)
        raise RESET

    monkeypatch.setattr(VerifySite, "ended", stopped)
    outcome = verify()
    assert outcome.code == 130
    assert "fail" not in outcome.err


def test_an_annotation_that_is_no_number_ends_no_run(
    server: StillServer, verify: Callable[..., WhatIfOutcome]
) -> None:
    """In a namespace of others, its users may write to the pods of the run."""

    def edited(pod: dict[str, Any]) -> None:
        pod["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_POD"] = "many"
        pod["status"] = {"phase": "Succeeded"}

    server.after = edited
    outcome = verify("-n", "team")
    assert "3 rows: 3 fail" in outcome.out
    assert not left(server)


@pytest.mark.parametrize("seconds", ["9" * 5000, "soon", "-1", "\u00b2"])
def test_a_namespace_with_an_odd_duration_is_no_expired_run(seconds: str) -> None:
    """Whoever may create namespaces chooses its name, its labels and its annotations."""
    place = RunPlace(
        namespace="gpushare-verify-x", own=True, image="", node="n", run="x", seconds=1
    )
    item = objects.namespace(place)
    item["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    now = datetime(2026, 1, 2, 4, tzinfo=UTC)
    assert objects.expired(item, now)
    item["metadata"]["annotations"][VERIFY_SECONDS] = seconds
    assert not objects.expired(item, now)
