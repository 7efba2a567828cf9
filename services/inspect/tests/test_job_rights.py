"""The chart's CronJobs have the rights that they use, and no others."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from charting import Rendered, render
from chartrights import Authorizer, ChartRight, request_right, rights_of
from drawncluster import FakeCluster, Gpu
from evictingserver import PODS, EvictingServer
from fakeapiserver import FakeApiServer
from invoking import POD, Run, WhatIfOutcome
from restricting import restrict
from test_defrag_apply import scattered
from test_idle_evict import HOUR, NOTICE, START, Idle
from verifyingserver import VerifyingServer

from gpucore.sizing.idle_eviction import IdleNotice, notice_text
from gpucore.units import PodUid
from gpuinspect.terminal import ages
from standins.cuda import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Object = dict[str, Any]
SPACE: Final = "gpushare"
UNKNOWN_HEALTH: Final = "unhealthy GPUs are unknown: the extender reads them"
CONFIG_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
UNHEALTHY: Final = ChartRight("list", "", "configmaps", "kube-system")
SCHEDULERS: Final = {
    ChartRight("list", "", "configmaps"),
    ChartRight("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
}
"""Which schedulers call the extender: the job has a flag instead."""


class ChartJob:
    """A CronJob of the chart, and a server that permits what the roles of its account permit."""

    def __init__(self, name: str, values: Object, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chart: Rendered = render("1.36.0", values, namespace=SPACE)
        self.name = f"gpushare-{name}"
        self.authorizer = Authorizer(rights_of(self.chart, self.name))
        self._monkeypatch = monkeypatch

    @property
    def args(self) -> tuple[str, ...]:
        """The command and its flags."""
        (container,) = dict(self.chart.ending_pods())[self.name]["containers"]
        return tuple(container["args"])

    @property
    def lease_path(self) -> str:
        """Of its Lease on the API server."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/{self.name}"

    def lease(self) -> Object:
        """The Lease that Helm creates."""
        found = self.chart.one("Lease", self.name)
        found["metadata"]["resourceVersion"] = "1"
        return found

    def restrict(self, server: FakeApiServer) -> None:
        """Let the server answer 403 to all that the account may not do."""
        restrict(server, self.authorizer, self._monkeypatch)


class Eviction:
    """The scattered cluster of defragmentation, and the job of the chart."""

    def __init__(self, run: Run, job: ChartJob, folder: Path) -> None:
        self.server = EvictingServer(scattered(FakeCluster()), lease_path=job.lease_path)
        self.server.lease = job.lease()
        self.server.pods.append(extender(job.chart))
        job.restrict(self.server)
        self._run, self._job, self._folder = run, job, folder

    def __call__(self) -> WhatIfOutcome:
        with self.server.serving():
            config = str(self.server.kubeconfig(self._folder))
            return self._run(*self._job.args, "--kubeconfig", config)


def extender(chart: Rendered) -> Object:
    """A pod of the chart's extender."""
    labels = {"app.kubernetes.io/component": "scheduler"}
    metadata = {"name": "extender", "namespace": SPACE, "uid": "uid-extender", "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": dict(chart.pods())["scheduler"]}


def withdrawn(server: FakeApiServer, node: str, gpu: int) -> None:
    """A ConfigMap that lists a GPU as unhealthy."""
    name = {"name": f"unhealthy-gpu-{node}", "namespace": "kube-system"}
    item = {"kind": "ConfigMap", "metadata": name, "data": {"gpus": str(gpu)}}
    server.lists[CONFIG_MAPS].append(item)


@pytest.mark.parametrize("maps", [False, True])
@pytest.mark.parametrize("apply", [False, True])
def test_defragmentation_has_the_rights_that_it_uses(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apply: bool, maps: bool
) -> None:
    """It evicts where it may, and has no right besides."""
    values = {"defragmentation": {"enabled": True, "apply": apply}, "unhealthyConfigMaps": maps}
    job = ChartJob("defragmentation", values, monkeypatch)
    evicting = Eviction(run, job, tmp_path)
    outcome = evicting()
    assert (outcome.code, evicting.server.evicted) == (0, ["b", "c"] if apply else [])
    dry_run = set() if apply else {ChartRight("create", "", "pods/eviction", "default", "b")}
    assert job.authorizer.refused == SCHEDULERS | dry_run | (set() if maps else {UNHEALTHY})
    assert job.authorizer.unused == set()


def test_defragmentation_evicts_nothing_for_room_on_a_gpu_that_a_config_map_withdraws(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extender would not place the waiting pod there."""
    values = {"defragmentation": {"enabled": True, "apply": True}, "unhealthyConfigMaps": True}
    evicting = Eviction(run, ChartJob("defragmentation", values, monkeypatch), tmp_path)
    withdrawn(evicting.server, "n1", 1)
    assert evicting().code == 0
    assert (evicting.server.evicted, evicting.server.tried) == ([], [])


@pytest.mark.parametrize("status", [403, 500])
def test_nothing_is_evicted_while_it_is_not_known_which_gpus_are_withdrawn(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The list cannot be read, and the extender reads it."""
    values = {"defragmentation": {"enabled": True, "apply": True}, "unhealthyConfigMaps": True}
    evicting = Eviction(run, ChartJob("defragmentation", values, monkeypatch), tmp_path)
    evicting.server.statuses[CONFIG_MAPS] = status
    outcome = evicting()
    assert (outcome.code, evicting.server.evicted) == (1, [])
    assert UNKNOWN_HEALTH in " ".join(outcome.err.split())


@pytest.mark.parametrize("words", ["pending -A", "explain pod default/w", "whatif -f pod.yaml"])
@pytest.mark.parametrize("maps", [False, True])
def test_who_may_not_list_withdrawn_gpus_reads_that_they_are_unknown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, *, maps: bool
) -> None:
    """Only where the extender reads them: a pod may seem to fit a GPU that it does not use."""
    values = {"defragmentation": {"enabled": True}, "unhealthyConfigMaps": maps}
    server = Eviction(run, ChartJob("defragmentation", values, monkeypatch), tmp_path).server
    server.statuses[CONFIG_MAPS] = 403
    (tmp_path / "pod.yaml").write_text(POD)
    monkeypatch.chdir(tmp_path)
    with server.serving():
        outcome = run(*words.split(), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert (UNKNOWN_HEALTH in " ".join(outcome.err.split())) == maps


@pytest.mark.parametrize("evict", [False, True])
def test_the_job_of_idle_shares_has_the_rights_that_it_uses(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, evict: bool
) -> None:
    """Notice, and the eviction a day later; without ``evict`` a dry run of it is refused."""
    values = {"idle": {"schedule": "30 * * * *", "evict": evict}, "unhealthyConfigMaps": True}
    job = ChartJob("idle", values, monkeypatch)
    idle = Idle(run, tmp_path, lease_path=job.lease_path)
    idle.server.lease = job.lease() if evict else None
    notice = IdleNotice(PodUid("uid-default-a"), int(START), int(START + 24 * HOUR))
    idle.server.pod("a")["metadata"]["annotations"][NOTICE] = notice_text(notice)
    job.restrict(idle.server)
    monkeypatch.setattr(ages, "now", lambda: datetime.fromtimestamp(idle.now, UTC))
    command, *flags = job.args
    assert command == "idle"
    with idle.server.serving():
        idle.later(30)
        outcome = idle(*flags, mode="--evict" if evict else "--dry-run")
    assert outcome.code == 0, outcome.err
    assert idle.server.evicted == (["a"] if evict else [])
    dry_run = set() if evict else {ChartRight("create", "", "pods/eviction", "default", "a")}
    assert job.authorizer.refused == dry_run
    assert job.authorizer.unused == set()


@pytest.fixture
def verifying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VerifyingServer]:
    """A node whose driver forgets the limits, so that a row fails."""
    monkeypatch.setattr("gpuinspect.verify.site.LOOK_SECONDS", 0.05)
    cluster = FakeCluster().node("n1", gpus=[Gpu(16, mode="driver")] * 2)
    with ExitStack() as stack:
        server = VerifyingServer(cluster, tmp_path / "node", build.ensure())
        server.limits = False
        stack.callback(server.close)
        yield server


@pytest.mark.parametrize("maps", [False, True])
def test_the_job_of_verify_has_the_rights_that_it_uses(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verifying: VerifyingServer,
    *,
    maps: bool,
) -> None:
    """Its pods, the results of a run and the event of a row that failed."""
    values = {"verify": {"schedule": "17 4 * * *"}, "unhealthyConfigMaps": maps}
    job = ChartJob("verify", values, monkeypatch)
    job.restrict(verifying)
    with verifying.serving():
        outcome = run(*job.args, "--kubeconfig", str(verifying.kubeconfig(tmp_path)))
    assert "1 fail" in outcome.out, outcome.err
    assert "not recorded" not in outcome.err
    assert job.authorizer.refused == (set() if maps else {UNHEALTHY})
    assert job.authorizer.unused == set()


def test_verify_takes_no_gpu_while_it_is_not_known_which_are_withdrawn(
    run: Run, tmp_path: Path, verifying: VerifyingServer
) -> None:
    """Its pods would not be placed on a withdrawn one, and its rows fail."""
    chart = render("1.36.0", {"unhealthyConfigMaps": True}, namespace=SPACE)
    verifying.lists[PODS].append(extender(chart))
    verifying.statuses[CONFIG_MAPS] = 403
    with verifying.serving():
        config = str(verifying.kubeconfig(tmp_path))
        outcome = run("verify", "--only", "quick", "--kubeconfig", config)
    assert (outcome.code, verifying.created) == (1, [])
    assert UNKNOWN_HEALTH in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("request_line", "right"),
    [
        ("GET /api/v1/nodes?limit=1", ChartRight("list", "", "nodes")),
        ("GET /api/v1/nodes/a", ChartRight("get", "", "nodes", "", "a")),
        ("GET /api/v1/namespaces", ChartRight("list", "", "namespaces")),
        ("GET /api/v1/pods?watch=1", ChartRight("watch", "", "pods")),
        (
            "GET /api/v1/namespaces/n/configmaps?fieldSelector=metadata.name%3Dm",
            ChartRight("list", "", "configmaps", "n", "m"),
        ),
        (
            "POST /api/v1/namespaces/n/pods/a/eviction",
            ChartRight("create", "", "pods/eviction", "n", "a"),
        ),
        (
            "GET /api/v1/namespaces/n/pods/https:a:1/proxy/usage/x",
            ChartRight("get", "", "pods/proxy", "n", "https:a:1"),
        ),
        (
            "DELETE /apis/batch/v1/namespaces/n/jobs/j?propagationPolicy=Foreground",
            ChartRight("delete", "batch", "jobs", "n", "j"),
        ),
    ],
)
def test_a_request_needs_the_right_that_the_api_server_asks_for(
    request_line: str, right: ChartRight
) -> None:
    """A list with the name of one object is a list of that object."""
    method, _, target = request_line.partition(" ")
    assert request_right(method, target) == right
    assert request_right("GET", "/version") is None
