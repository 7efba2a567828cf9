"""The waits of ``gpushare verify``: an API server that fails for a while ends no run."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.verify.objects import RunPlace
from gpuinspect.verify.rows import RowRunner
from gpuinspect.verify.site import PodFailedError, PodLateError, RunStoppedError, VerifySite
from gpuinspect.verify.targets import SHARE_MIB, ProofTarget
from gpukube.errors import KubeError, NotFoundError, ServerError, ThrottledError, UnreachableError
from gpuprobe.checks import processes
from gpuprobe.checks.verdicts import ProofVerdict

RESET = UnreachableError("GET pod: connection reset")
RESTARTS = ServerError("GET pod", status=503, message="shutting down")
THROTTLED = ThrottledError("GET pod", status=429, message="too many requests")
GONE = NotFoundError("GET pod", status=404, message="not found")


class FailingClient:
    """Answers requests by a script: a phase of the pod, or an error."""

    def __init__(self, *script: str | KubeError) -> None:
        self._script = iter(script)
        self.deleted = 0

    def get(self, path: str, params: object = None) -> bytes:
        """The pod as the script has it."""
        item: Any = {"metadata": {}, "spec": {"nodeName": "n"}, "status": {"phase": self._next()}}
        return msgspec.json.encode(item)

    def delete(self, path: str, params: object = None) -> bytes:
        """Accepted as the script has it."""
        self._next()
        self.deleted += 1
        return b"{}"

    def _next(self) -> str:
        one = next(self._script)
        if isinstance(one, KubeError):
            raise one
        return one


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses."""
    monkeypatch.setattr("gpuinspect.verify.site.LOOK_SECONDS", 0)


def site(client: Any, *, own: bool = True) -> VerifySite:
    """A run of a minute whose objects are not created."""
    place = RunPlace(namespace="v", own=own, image="i", node="n", run="r", seconds=60)
    return VerifySite(client, place)


def test_a_wait_outlasts_an_api_server_that_restarts() -> None:
    """One of thousands of requests fails in a long run."""
    client = FailingClient("Running", RESET, RESTARTS, THROTTLED, "Running", "Succeeded")
    assert site(client).ended("p")["status"]["phase"] == "Succeeded"


def test_a_pod_that_fails_without_a_node_is_not_waited_for() -> None:
    """It never gets one: the row does not wait for a minute."""

    class Unbound(FailingClient):
        def get(self, path: str, params: object = None) -> bytes:
            return super().get(path, params).replace(b'"nodeName":"n"', b"")

    client = Unbound("Pending", "Failed")
    assert site(client).bound("p")["status"]["phase"] == "Failed"


def test_a_deletion_is_repeated_until_it_is_accepted() -> None:
    """Else the pod would hold its share until the end of the run."""
    client = FailingClient(RESET, "accepted", RESTARTS, GONE)
    site(client).delete("p")
    assert client.deleted == 1


def test_a_run_that_is_stopped_deletes_no_single_pod() -> None:
    """All go with its namespace or its Job: an API server that is away is waited for once."""
    client = FailingClient("accepted")
    stopped = site(client)
    stopped.stop()
    with pytest.raises(RunStoppedError):
        stopped.delete("p")
    assert client.deleted == 0


@pytest.mark.parametrize("wait", ["bound", "ended"])
def test_a_pod_that_was_never_read_fails_its_row(
    wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server answered no request in time: that is a sentence, and no crash of the run."""
    patience = VerifySite.wait
    monkeypatch.setattr(VerifySite, "wait", lambda *call: patience(*call[:3], -1))
    with pytest.raises(PodFailedError, match="503 shutting down"):
        getattr(site(FailingClient(RESTARTS)), wait)("p")


def test_what_kept_a_wait_from_its_end_is_named() -> None:
    """The row has the last error of the API server."""

    def fails() -> bool:
        raise RESTARTS

    with pytest.raises(
        PodFailedError, match=r"not in 0 s: it is so \(GET pod: 503 shutting down\)"
    ):
        site(FailingClient()).wait(fails, "it is so", 0)


@pytest.mark.parametrize(
    ("phase", "failure"), [("Pending", PodFailedError), ("Running", PodLateError)]
)
def test_only_a_pod_that_runs_is_late(
    phase: str, failure: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPS lets a running pod wait for others; one that did not start has another reason."""
    monkeypatch.setattr("gpuinspect.verify.site.END_SECONDS", 0)
    with pytest.raises(PodFailedError) as raised:
        site(FailingClient(*[phase] * 9)).ended("p")
    assert raised.type is failure


def test_a_pod_that_is_gone_was_ended_by_others() -> None:
    """Its row is deleted by nobody but the run itself, which has not yet."""
    assert "deleted during the row" in site(FailingClient(GONE)).disruption("p")
    assert site(FailingClient("Failed")).disruption("p") == ""


def runner(site: Any = None, **changed: Any) -> RowRunner:
    """The rows of an empty GPU of 16 units."""
    target = ProofTarget(
        node=NodeName("n"),
        index=GpuIndex(0),
        uuid="GPU-0",
        model="",
        mode="driver",
        driver="",
        memory_mib=0,
        unit_mib=1024,
        total=16,
        free=16,
        core_free=100,
        empty=True,
    )
    known: Any = None
    target = msgspec.structs.replace(target, **changed)
    return RowRunner(site, target, DEFAULT_NAMES, known, starts=1)


@pytest.mark.parametrize("group", ["0,3", "3,0"])
def test_the_link_of_two_gpus_is_that_of_the_pair_in_any_order(group: str) -> None:
    """The inventory has one link for each pair."""
    pod = {"metadata": {"annotations": {DEFAULT_NAMES.group: group}}}
    assert runner(links={(0, 3): (4, "NV4")})._link(pod) == (4, "NV4")


def test_a_burst_needs_its_share_and_its_limit_free() -> None:
    """Where no limit holds, the process takes more than the limit, and none of other pods'."""
    units = runner().target.units(SHARE_MIB)
    (proof,) = runner(free=3 * units - 1)._burst()
    assert (proof.verdict, proof.seen.startswith("needs ")) == (ProofVerdict.SKIP, True)


def test_three_processes_get_a_share_that_leaves_what_other_pods_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no limit holds, each of them takes as much as the limit of one."""
    rows = runner(free=11)
    most = processes.most_allocated_mib(11 * 1024) // 1024
    assert most < rows.target.share
    start = Mock(side_effect=PodFailedError("p", "stopped here"))
    monkeypatch.setattr(rows, "_pods", SimpleNamespace(start=start))
    with pytest.raises(PodFailedError):
        rows._processes()
    assert start.call_args.args[2] == most


def test_the_link_of_a_pair_needs_two_free_gpus() -> None:
    """One alone has no link, and its pod would wait."""
    (proof,) = runner(whole_offered=True, free_gpus=1)._exclusive()
    assert (proof.verdict, proof.seen.startswith("needs two GPUs")) == (ProofVerdict.SKIP, True)


def test_a_neighbour_that_failed_is_not_waited_for() -> None:
    """It reports nothing any more: its error is in its log."""
    over: list[bool] = []
    log = '{"do": "watch", "error": {"name": "CUDA_ERROR_X", "code": 1, "call": "cuInit"}}\n'
    waiting = SimpleNamespace(log=lambda _: log, wait=lambda done, _: over.append(done()))
    runner(waiting)._reports("p", 3)
    assert over == [True]
