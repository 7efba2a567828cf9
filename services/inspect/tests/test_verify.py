"""``gpushare verify`` on a cluster that runs its pods: rows hold, and each fault turns one red."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run, WhatIfOutcome
from verifyingserver import CONTEXT_MIB, VerifyingServer, listed

from gpucore.wire.lists import decode_pods
from gpucore.wire.names import DEFAULT_NAMES, ENV_VISIBLE_DEVICES
from gpucore.wire.verified import VerifiedNode, decode_verified, encode_verified
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import decode
from gpuinspect.errors import InspectError
from gpuinspect.queries.verified import verified_rows
from gpuinspect.verify.image import image_on, plugin_pods
from gpuinspect.verify.record import joined
from gpuinspect.verify.targets import ProofTarget
from gpukube.errors import UnreachableError
from gpukube.testing.plugin_pods import plugin_pod
from gpuprobe.checks import compute, memory, neighbour, share
from standins.cuda import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Serve = Callable[..., VerifyingServer]
VERDICTS = ("pass", "fail", "known", "skip")
FAKE_MULTIPROCESSORS = 16


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in needs less time than a GPU.

    Its kernels sleep, so that a busy host wakes them late: long ones lose a smaller part by that.
    """
    monkeypatch.setattr(neighbour, "STAY_SECONDS", 1.5)
    monkeypatch.setattr(neighbour, "KERNEL_MS", 10.0)
    monkeypatch.setattr(compute, "FULL_KERNEL_MS", 50.0)
    monkeypatch.setattr("gpuinspect.verify.rows.BURN_SECONDS", 0.3)
    monkeypatch.setattr("gpuinspect.verify.site.LOOK_SECONDS", 0.05)
    monkeypatch.setattr(compute, "PERCENTS", (100, 50, 10))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a cluster of one node with two GPUs of a mode, or the one that is given."""
    with ExitStack() as stack:

        def started(mode: str = "driver", *, on: FakeCluster | None = None) -> VerifyingServer:
            gpu = Gpu(16, mode=mode)
            cluster = on or FakeCluster().node("n1", gpus=[gpu, gpu])
            server = VerifyingServer(cluster, tmp_path / "node", build.ensure())
            stack.callback(server.close)
            stack.enter_context(server.serving())
            if "mps" in mode:
                server.serve_mps()
            return server

        yield started


class Verify:
    """The command against a server."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run, self._folder = run, folder

    def __call__(self, server: VerifyingServer, *args: str) -> WhatIfOutcome:
        kubeconfig = str(server.kubeconfig(self._folder))
        return self._run("verify", "--kubeconfig", kubeconfig, *args)

    def rows(self, server: VerifyingServer, *args: str) -> dict[str, dict[str, Any]]:
        """The rows of the only GPU by name."""
        outcome = self(server, "-o", "json", *args)
        (gpu,) = json.loads(outcome.out)["items"]
        rows = {row["row"]: row for row in gpu["rows"]}
        failed = any(row["verdict"] == "fail" for row in rows.values())
        assert outcome.code == int(failed), outcome.err
        return rows


@pytest.fixture
def verify(run: Run, tmp_path: Path) -> Verify:
    """Runs ``gpushare verify``."""
    return Verify(run, tmp_path)


def verdicts(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The verdicts by row."""
    return {name: row["verdict"] for name, row in rows.items()}


def test_every_row_holds_where_the_driver_limits_memory(serve: Serve, verify: Verify) -> None:
    """All rows of mode driver pass, what the mode does not promise is skipped, nothing stays."""
    server = serve("driver")
    rows = verify.rows(server, "--starts", "2")
    skipped = {"compute": "skip", "exclusive": "skip"}
    passed = dict.fromkeys(rows, "pass")
    assert verdicts(rows) == passed | skipped, rows
    assert rows["memory"]["figures"]["reached_mib"] == 4096 - CONTEXT_MIB
    (namespace,) = [path for path in server.created if path.count("/") == 4]
    assert server.gone[-1] == namespace
    assert not [path for path in server.objects if "gpushare-verify" in path]


def test_every_row_holds_behind_mps_but_what_mps_does_not_promise(
    serve: Serve, verify: Verify
) -> None:
    """Limits are of each process, so the row of a pod's processes is known not to hold."""
    rows = verify.rows(serve("mps"), "--starts", "1")
    assert verdicts(rows) == dict.fromkeys(rows, "pass") | {
        "processes": "known",
        "burst": "skip",
        "exclusive": "skip",
    }, rows


def test_without_isolation_the_limit_is_known_not_to_hold(serve: Serve, verify: Verify) -> None:
    """The exit code is 0: mode none promises no limit, and the table states it."""
    rows = verify.rows(serve("none"), "--only", "quick,processes")
    assert verdicts(rows) == {
        "share": "pass",
        "accounting": "pass",
        "memory": "known",
        "processes": "known",
    }
    assert "beyond its share" in rows["memory"]["seen"]


def test_gpus_that_come_by_cdi_pass(serve: Serve, verify: Verify) -> None:
    """Containers of NVIDIA's runtime in CDI mode have void as the name of every GPU."""
    server = serve("driver")
    server.cdi = True
    rows = verify.rows(server, "--only", "quick")
    assert verdicts(rows) == dict.fromkeys(("share", "accounting", "memory"), "pass"), rows
    _wrong_cdi(server)
    assert verify.rows(server, "--only", "quick")["share"]["verdict"] == "fail"


def test_two_that_share_do_work_of_one_size(serve: Serve, verify: Verify) -> None:
    """The first settles the size alone; seen on an H100, turns of the other would be in it else."""
    server = serve("none")
    plans: list[dict[str, Any]] = []

    def note(pod: dict[str, Any]) -> None:
        if pod["metadata"]["name"].startswith("sharing"):
            plans.append(json.loads(pod["spec"]["containers"][0]["command"][-1])[-1])

    server.before = note
    assert verdicts(verify.rows(server, "--only", "sharing")) == {"sharing": "pass"}
    first, second = plans
    assert "rounds" not in first
    assert second["rounds"] > 0


def test_kernels_fill_the_gpu_and_not_the_part_that_mps_leaves_to_a_share(
    serve: Serve, verify: Verify
) -> None:
    """CUDA reports to a process the multiprocessors that MPS lets it use."""
    server = serve("mps")
    steps: list[dict[str, Any]] = []
    server.before = lambda pod: steps.extend(
        json.loads(pod["spec"]["containers"][0]["command"][-1])
        if pod["metadata"]["name"].startswith("compute")
        else ()
    )
    rows = verify.rows(server, "--only", "share,compute")
    assert verdicts(rows)["compute"] == "pass"
    blocks = {step["blocks"] for step in steps if "blocks" in step}
    assert blocks == {FAKE_MULTIPROCESSORS * compute.SMALL_PART}


def _limit_off(server: VerifyingServer) -> None:
    server.limits = False


def _wrong_cdi(server: VerifyingServer) -> None:
    """The CDI file of a GPU gives the container the other one."""
    (node,) = server.lists["/api/v1/nodes"]
    inventory = json.loads(node["metadata"]["annotations"]["gpushare/inventory"])
    first, second = (gpu["uuid"] for gpu in inventory["gpus"])
    server.misplaced = {first: second, second: first}


def _mps_down(server: VerifyingServer) -> None:
    (server.folder / "mps" / "control").unlink()


def _wrong_amount(server: VerifyingServer) -> None:
    """Kubelet's share is another than the scheduler's."""

    def changed(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"][0]["resources"]["limits"]["aliyun.com/gpu-mem"] = "3"

    server.before = changed


def _no_burst(server: VerifyingServer) -> None:
    """The driver holds the pod to its share, whatever limit it asked for."""
    server.before = lambda pod: pod["metadata"]["annotations"].pop("gpushare/memory-limit", None)


FAULTS: dict[str, tuple[str, Callable[[VerifyingServer], None], str, str]] = {
    "limit off": ("driver", _limit_off, "memory", "no refusal"),
    "driver ignores the limit": (
        "driver",
        lambda s: s.faults("ignore-limit"),
        "memory",
        "no refusal",
    ),
    "limit off for all processes": ("driver", _limit_off, "processes", "MiB: fork"),
    "MPS down": ("mps", _mps_down, "memory", "no refusal"),
    "MPS down for compute": ("mps", _mps_down, "compute", "% reaches"),
    "threads ignored": ("mps", lambda s: s.faults("ignore-threads"), "compute", "% reaches"),
    "wrong CDI file": ("driver", _wrong_cdi, "share", "CUDA sees GPU"),
    "wrong device for the accounting": ("driver", _wrong_cdi, "accounting", "process: GPU"),
    "wrong amount": ("driver", _wrong_amount, "share", "GPU_MEM_CONTAINER is 3"),
    "neighbour starved": ("driver", lambda s: s.faults("starve"), "neighbour", "of its speed"),
    "neighbour's memory changed": (
        "driver",
        lambda s: s.faults("disturb"),
        "neighbour",
        "memory of the neighbour was changed",
    ),
    "fault spreads": (
        "driver",
        lambda s: s.faults("spread"),
        "neighbour",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    "speed of two lost": ("driver", lambda s: s.faults("crowded"), "sharing", "of the speed alone"),
    "shares are slow": ("driver", lambda s: s.faults("slow-shares"), "overhead", "% slower"),
    "shares behind MPS are slow": (
        "mps",
        lambda s: s.faults("slow-shares"),
        "overhead",
        "% slower",
    ),
    "no burst": ("driver", _no_burst, "burst", "after 1948 MiB"),
    "burst without end": ("driver", _limit_off, "burst", "no refusal"),
}
"""Faults by name: isolation mode, what breaks, the row that must be red, and words of it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_turns_its_row_red(fault: str, serve: Serve, verify: Verify) -> None:
    """The row states what was seen, and the next step."""
    mode, break_it, row, words = FAULTS[fault]
    server = serve(mode)
    break_it(server)
    asked = f"share,{row}" if row in {"compute", "overhead"} else row
    found = verify.rows(server, "--only", asked)[row]
    assert found["verdict"] == "fail", found
    assert words in found["seen"]
    assert found["nextStep"]


@pytest.mark.parametrize("row", ["neighbour", "sharing"])
def test_pods_on_another_gpu_neither_load_nor_crash_it(
    row: str, serve: Serve, verify: Verify
) -> None:
    """Pods of others may be there: these pods end before they work, and state what they see."""
    server = serve("driver")
    _wrong_cdi(server)
    found = verify.rows(server, "--only", row)[row]
    assert found["verdict"] == "fail", found
    assert found["seen"].startswith("GPU of the container: <GPU>, not <GPU>")
    (log,) = server.folder.glob(f"{row}-*.log")
    assert [json.loads(line)["do"] for line in log.read_text().splitlines()] == ["expect"]


@pytest.mark.parametrize("row", ["memory", "processes", "burst"])
def test_a_gpu_that_is_full_below_the_limit_proves_no_limit(
    row: str, serve: Serve, verify: Verify
) -> None:
    """Others use more than they hold: memory is refused at the end of the GPU, limit or not."""
    server = serve("driver")
    server.limits, server.gpu_mib = False, 4096
    found = verify.rows(server, "--only", row)[row]
    assert found["verdict"] == "skip", found
    assert "not measurable: the GPU was full (0 MiB free)" in found["seen"]


def test_processes_that_leave_the_end_of_the_gpu_to_others_prove_no_limit(
    serve: Serve, verify: Verify
) -> None:
    """Without isolation, on a GPU that others nearly fill, they stay below the share unlimited."""
    server = serve("none")
    server.gpu_mib = 4096
    found = verify.rows(server, "--only", "processes")["processes"]
    assert found["verdict"] == "skip", found
    assert "left the last 768 MiB of the GPU to others" in found["seen"]


@pytest.mark.parametrize("mode", ["driver", "mps"])
def test_without_a_cuda_driver_in_the_pods_the_next_step_is_the_runtime(
    mode: str, serve: Serve, verify: Verify
) -> None:
    """Rows that run on a GPU are red with the missing library; the others are what they are."""
    server = serve(mode)
    server.cuda_driver = server.folder / "nothing"
    rows = verify.rows(server, "--starts", "1")
    red = {name: row for name, row in rows.items() if row["verdict"] == "fail"}
    assert red.keys() >= {"share", "accounting", "memory", "processes", "neighbour", "health"}
    assert {row["seen"] for row in red.values()} == {
        "libcuda.so.1: cannot open shared object file: No such file or directory"
    }
    assert all("--runtime-class" in row["nextStep"] for row in red.values())


def test_without_a_bare_pod_the_cost_of_a_share_is_not_measured(
    serve: Serve, verify: Verify
) -> None:
    """Containers get no GPU without a share, or a policy refuses the pod: no fault of the share."""
    server = serve("driver")
    server.runtime = False
    row = verify.rows(server, "--only", "share,overhead")["overhead"]
    assert (row["verdict"], "cannot do the work" in row["seen"]) == ("skip", True)
    server.refused = ENV_VISIBLE_DEVICES
    row = verify.rows(server, "--only", "share,overhead")["overhead"]
    assert (row["verdict"], "is refused" in row["seen"]) == ("skip", True)


def test_the_bare_pod_works_while_its_share_is_held(serve: Serve, verify: Verify) -> None:
    """What it uses is accounted for by the idle pod that holds a share of the same GPU."""
    server = serve("driver")
    held: list[int] = []

    def look(pod: dict[str, Any]) -> None:
        if not pod["spec"]["containers"][0]["resources"]["limits"]:
            pods = decode_pods(listed(server.lists["/api/v1/pods"]).encode()).items
            held.append(sum(each.namespace == pod["metadata"]["namespace"] for each in pods) - 1)

    server.after = look
    verify.rows(server, "--only", "share,overhead")
    assert held == [1]


def test_a_gpu_that_becomes_unhealthy_turns_health_red(serve: Serve, verify: Verify) -> None:
    """The plugin took an application's fault for one of the GPU."""
    server = serve("driver")

    def taken_for_broken(pod: dict[str, Any]) -> None:
        if pod["metadata"]["name"].startswith("offender"):
            notes = server.lists["/api/v1/nodes"][0]["metadata"]["annotations"]
            inventory = json.loads(notes["gpushare/inventory"])
            inventory["gpus"][0]["healthy"] = False
            notes["gpushare/inventory"] = json.dumps(inventory)

    server.after = taken_for_broken
    found = verify.rows(server, "--only", "neighbour,health")["health"]
    assert found["verdict"] == "fail"
    assert "ignoredXids" in found["nextStep"]


def test_pods_stay_within_free_units(serve: Serve, verify: Verify) -> None:
    """Beside a pod that runs nothing is taken that it may need, and rows that would are skipped."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(16)]).pod("theirs", 11, node="n1", index=0)
    rows = verify.rows(serve("none", on=cluster), "--only", "memory,neighbour,processes")
    assert rows["memory"]["figures"]["reached_mib"] <= 5 * 1024 - memory.MARGIN_MIB
    assert verdicts(rows)["neighbour"] == verdicts(rows)["processes"] == "skip"


@pytest.mark.parametrize(("user", "verdict"), [(1000, "skip"), (65532, "fail")])
def test_a_pod_that_waits_for_those_of_another_user_is_no_fault_of_the_gpu(
    user: int, verdict: str, serve: Serve, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPS lets it wait for ever: at its deadline the row names the users, and the pod goes."""
    spec = {"securityContext": {"runAsUser": user}}
    cluster = FakeCluster().node("n1", gpus=[Gpu(16, mode="mps")])
    cluster.pod("theirs", 2, node="n1", index=0, spec=spec)
    monkeypatch.setattr("gpuinspect.verify.site.END_SECONDS", 0.5)
    monkeypatch.setattr(share, "steps", lambda _: [{"do": "stay", "seconds": 600}])
    row = verify.rows(serve("mps", on=cluster), "--only", "share")["share"]
    assert row["verdict"] == verdict, row
    assert "not in 0.5 s" in row["seen"]
    assert ("others on this GPU as user 1000" in row["seen"]) == (verdict == "skip")


def test_what_a_pod_takes_leaves_room_for_its_context(serve: Serve, verify: Verify) -> None:
    """Where no limit holds it is taken from the neighbour, which has 2,048 MiB of 16,384."""
    row = verify.rows(serve("none"), "--only", "neighbour")["neighbour"]
    assert row["verdict"] == "pass", row
    assert row["figures"]["greedy_mib"] <= 16384 - 2048 - memory.MARGIN_MIB


def test_a_full_gpu_is_refused_with_what_would_be_needed(serve: Serve, verify: Verify) -> None:
    """Nothing is created."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(16)]).pod("theirs", 15, node="n1", index=0)
    server = serve("none", on=cluster)
    outcome = verify(server)
    assert outcome.code == 1
    words = " ".join(outcome.err.split())
    assert "GPU 0 of node n1 has 1 of 16 units free; verify needs 3 units (3072 MiB)" in words
    assert not server.created


def test_missing_rights_are_named_before_anything_is_created(serve: Serve, verify: Verify) -> None:
    """Each with the words of ``kubectl auth can-i``."""
    server = serve()
    server.denied = {"create namespaces", "get pods/log"}
    outcome = verify(server)
    words = " ".join(outcome.err.split())
    assert outcome.code == 1
    assert "create namespaces" in words
    assert "get pods/log -n gpushare-verify-" in words
    assert "--namespace" in words
    assert not server.created


def test_an_existing_namespace_keeps_all_but_the_pods_of_the_run(
    serve: Serve, verify: Verify
) -> None:
    """No namespace and no role is created, and the guard is deleted with all its pods."""
    server = serve()
    outcome = verify(server, "-n", "team", "--only", "quick")
    assert outcome.code == 0
    kinds = {path.split("/")[-2] for path in server.created}
    assert kinds == {"jobs", "pods"}
    assert not [path for path in server.objects if path.startswith("/api/v1/namespaces/team/pods")]
    assert server.gone[-1].startswith("/apis/batch/v1/namespaces/team/jobs/gpushare-verify-")


def test_every_pod_ends_by_itself_where_the_command_cannot_end_it(
    serve: Serve, verify: Verify
) -> None:
    """Pods have a deadline and are owned by the guard, which has one too and is then deleted."""
    server = serve()
    seen: list[dict[str, Any]] = []
    server.before = seen.append
    verify(server, "--only", "quick", "--timeout", "120")
    (guard,) = [path for path in server.created if "/jobs/" in path]
    for pod in seen:
        assert 0 < pod["spec"]["activeDeadlineSeconds"] <= 120
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["kind"] == "Job"
        assert guard.endswith(owner["name"])


def test_the_guard_waits_until_a_time_of_the_api_server(serve: Serve, verify: Verify) -> None:
    """Its pod may be started again, and the clock of the user's machine may be wrong."""
    server = serve()
    verify(server, "--only", "quick", "--timeout", "120")
    (job,) = server.jobs
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    end = datetime.fromisoformat(server.clock) + timedelta(seconds=150)
    assert [command[3], command[5]] == ["150", f"{end.timestamp():.0f}"]
    assert job["spec"]["activeDeadlineSeconds"] > 150 + 60  # it may have to be started again


def test_in_a_namespace_of_others_the_deadline_of_its_job_ends_the_guard(
    serve: Serve, verify: Verify
) -> None:
    """The job controller counts from the start of the Job, however often its pod starts."""
    server = serve()
    verify(server, "-n", "team", "--only", "quick", "--timeout", "120")
    (job,) = server.jobs
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[3:] == ["150", "", ""]


def test_the_cluster_is_listed_once(serve: Serve, verify: Verify) -> None:
    """Later a row reads its node and the pods there: others may be a hundred thousand."""
    server = serve()
    verify(server, "--only", "quick")
    read = [
        each for each in server.requests if each.startswith(("/api/v1/pods?", "/api/v1/nodes?"))
    ]
    assert sorted(each[:12] for each in read if "fieldSelector" not in each) == [
        "/api/v1/node",
        "/api/v1/pods",
    ]
    of_node = ("fieldSelector=metadata.name%3Dn1", "fieldSelector=spec.nodeName%3Dn1")
    assert all(any(one in each for each in read) for one in of_node)


def left_namespace(name: str, created: str, seconds: str = "60", **labels: str) -> dict[str, Any]:
    """A namespace as a run of a minute creates it."""
    usual = {"app.kubernetes.io/managed-by": "gpushare-verify", "gpushare/verify": "namespace"}
    notes = {"gpushare/verify-seconds": seconds}
    meta = {"name": name, "uid": name, "creationTimestamp": created}
    return {"metadata": meta | {"labels": usual | labels, "annotations": notes}}


def test_a_namespace_that_a_killed_run_left_is_removed_by_the_next(
    serve: Serve, verify: Verify
) -> None:
    """One whose guard may still run stays, and so does what is no namespace of a run.

    By the clock of the API server alone: that of the user's machine may be wrong.
    """
    server = serve()
    old, now = "2026-01-02T03:00:05Z", "2026-01-02T03:04:00Z"
    namespaces = [
        left_namespace("gpushare-verify-aaaaaa", old),
        left_namespace("gpushare-verify-bbbbbb", now),
        left_namespace("gpushare-verify-cccccc", old, ""),
        left_namespace("gpushare-verify-dddddd", old, **{"gpushare/verify": "check"}),
        left_namespace("team", old),
    ]
    server.lists["/api/v1/namespaces"] = namespaces
    paths = {f"/api/v1/namespaces/{each['metadata']['name']}": each for each in namespaces}
    server.objects |= paths
    assert verify(server, "--only", "quick").code == 0
    assert paths.keys() - server.objects.keys() == {"/api/v1/namespaces/gpushare-verify-aaaaaa"}


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_leaves_nothing_behind(
    at: int,
    error: type[BaseException],
    serve: Serve,
    verify: Verify,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever object was the last to be created."""
    server = serve()
    count = iter(range(1, 100))
    from gpukube.blocking import BlockingClient  # noqa: PLC0415 - patched below

    post = BlockingClient.post

    def interrupted(self: BlockingClient, path: str, body: Any) -> bytes:
        reply = post(self, path, body)
        if "selfsubject" not in path and next(count) == at:
            raise error
        return reply

    monkeypatch.setattr(BlockingClient, "post", interrupted)
    try:
        outcome = verify(server, "--only", "quick")
    except error:
        outcome = None
    assert outcome is None or outcome.code
    assert not [path for path in server.objects if "gpushare-verify" in path]


def node_of(pod: dict[str, Any]) -> str:
    """The node that the affinity of a pod names."""
    terms = pod["spec"]["affinity"]["nodeAffinity"]
    field = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    return str(field["matchFields"][0]["values"][0])


@pytest.fixture
def two_nodes() -> FakeCluster:
    """Two nodes with a GPU each."""
    gpu = Gpu(16, mode="driver")
    return FakeCluster().node("n1", gpus=[gpu]).node("n2", gpus=[gpu])


def test_nodes_are_verified_at_once(two_nodes: FakeCluster, serve: Serve, verify: Verify) -> None:
    """The first pod of each node is created before one of them has ended; all rows are there."""
    server = serve(on=two_nodes)
    both, first = threading.Barrier(2, timeout=60), set[str]()

    def meet(pod: dict[str, Any]) -> None:
        if node_of(pod) not in first:
            first.add(node_of(pod))
            both.wait()

    server.before = meet
    outcome = verify(server, "--only", "quick", "-o", "json")
    assert outcome.code == 0, outcome.out
    found = {gpu["node"]: verdicts({r["row"]: r for r in gpu["rows"]}) for gpu in _items(outcome)}
    assert found == dict.fromkeys((1, 2), dict.fromkeys(("share", "accounting", "memory"), "pass"))
    assert not both.broken


def _items(outcome: WhatIfOutcome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(outcome.out)["items"]
    return found


def test_an_error_on_one_node_ends_the_run_on_all(
    two_nodes: FakeCluster, serve: Serve, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod of the other would go on for minutes; nothing of either is left."""
    server = serve(on=two_nodes)
    long = threading.Event()

    def begun(pod: dict[str, Any]) -> None:
        if node_of(pod) == "n2":
            long.set()

    def fails(_: object, __: object, target: ProofTarget, *___: object) -> str:
        if target.node == "n1":
            assert long.wait(60)
            raise RuntimeError
        return "spread"

    stay = [{"do": "stay", "seconds": 600}]
    monkeypatch.setattr(share, "steps", lambda _: stay)
    monkeypatch.setattr("gpuinspect.verify.placing.steering", fails)
    server.after = begun
    begin = time.monotonic()
    with suppress(RuntimeError):
        assert verify(server, "--only", "quick").code
    assert time.monotonic() - begin < 100
    assert not [path for path in server.objects if "gpushare-verify" in path]


def test_a_request_that_fails_ends_the_row_alone(
    serve: Serve, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows of the GPU, and all of other nodes, are verified."""

    def fails(*_: object) -> None:
        raise UnreachableError("GET /api/v1/pods: connection reset")

    monkeypatch.setattr("gpuinspect.verify.rows.device_now", fails)
    rows = verify.rows(serve("driver"), "--only", "share,accounting,memory,neighbour,health")
    assert verdicts(rows) == {
        "share": "pass",
        "accounting": "pass",
        "memory": "pass",
        "neighbour": "fail",
        "health": "fail",
    }
    assert "connection reset" in rows["health"]["seen"]


def test_the_table_shows_what_to_do(serve: Serve, verify: Verify) -> None:
    """A line a row, then expected, seen and the next step of what failed, then the count."""
    server = serve("driver")
    server.limits = False
    outcome = verify(server, "--only", "quick")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[0].split()[:5] == ["NODE", "GPU", "MODEL", "MODE", "ROW"]
    cells = [line.split()[5:7] for line in lines[1:4]]  # a model is two words
    assert cells == [["share", "pass"], ["accounting", "pass"], ["memory", "fail"]]
    assert lines[-1] == "3 rows: 2 pass, 1 fail"
    assert any(line.strip().startswith("expected: out of memory at 4096 MiB") for line in lines)
    assert any(line.strip().startswith("do: ") for line in lines)


def test_the_json_names_nothing_of_the_cluster(serve: Serve, verify: Verify) -> None:
    """It is a report for everybody: no node, no pod, no namespace, no UUID."""
    server = serve("driver")
    _wrong_cdi(server)
    out = verify(server, "--only", "quick", "-o", "json").out
    assert "n1" not in out
    assert "GPU-" not in out
    assert "gpushare-verify" not in out
    assert json.loads(out)["kind"] == "VerifyReport"


def test_junit_has_a_case_for_each_row(serve: Serve, verify: Verify) -> None:
    """A failed row is a failure with its next step, a row that was not measured is skipped."""
    server = serve("driver")
    server.limits = False
    out = verify(server, "--only", "memory,compute", "-o", "junit").out
    assert '<testsuite name="n1 GPU 0 Tesla T4" tests="2" failures="1" skipped="1">' in out
    assert 'name="memory"><failure message="expected out of memory' in out


def test_a_named_gpu_is_reached_with_fillers(serve: Serve, verify: Verify) -> None:
    """No policy leads to the second of two empty GPUs; pods of one unit make one do so."""
    server = serve("driver")
    outcome = verify(server, "--gpu", "1", "--node", "n1", "--only", "quick", "-o", "json")
    (gpu,) = json.loads(outcome.out)["items"]
    assert gpu["gpu"] == 1
    assert outcome.code == 0, outcome.out
    assert any("/pods/filler-" in path for path in server.created)


def uuids(server: VerifyingServer) -> list[str]:
    """UUIDs of the GPUs of the only node."""
    (node,) = server.lists["/api/v1/nodes"]
    inventory = json.loads(node["metadata"]["annotations"]["gpushare/inventory"])
    return [gpu["uuid"] for gpu in inventory["gpus"]]


def test_results_are_recorded_on_the_plugins_pod_and_as_events(
    serve: Serve, verify: Verify
) -> None:
    """Metrics and the dashboard show the annotation; the event on the node has what was seen."""
    server = serve("driver")
    server.limits = False
    assert verify(server, "--only", "quick", "--record").code == 1
    (plugin,) = [pod for pod in server.lists["/api/v1/pods"] if "selfLink" in pod]
    found = decode_verified(plugin["metadata"]["annotations"]["gpushare/verified"])
    assert found is not None
    rows = {"share": "pass", "accounting": "pass", "memory": "fail"}
    assert found.gpus == {uuids(server)[0]: rows}
    (event,) = [item for path, item in server.objects.items() if "/events/" in path]
    assert event["reason"] == "GpuVerifyFailed"
    assert event["involvedObject"]["kind"] == "Node"
    assert "memory: expected out of memory" in event["message"]
    snapshot = decode(listed([*server.lists["/api/v1/nodes"], plugin]).encode())
    (row, *_) = verified_rows(snapshot, ledger_of(snapshot, DEFAULT_NAMES))
    assert (row.node, row.gpu, row.row, row.verdict) == ("n1", "0", "accounting", "pass")


def test_a_failure_stays_recorded_until_its_row_holds(serve: Serve, verify: Verify) -> None:
    """The next night the GPU may be full, or another be verified: the alert goes on."""
    server = serve("driver")
    uuid, other = uuids(server)
    before = VerifiedNode(
        7,
        {
            uuid: {"exclusive": "fail", "burst": "known", "memory": "fail"},
            "1": {"share": "fail"},
            "5": {"memory": "fail"},
            "GPU-gone": {"memory": "fail"},
        },
    )
    (plugin,) = [pod for pod in server.lists["/api/v1/pods"] if "selfLink" in pod]
    plugin["metadata"].setdefault("annotations", {})["gpushare/verified"] = encode_verified(before)
    assert verify(server, "--only", "quick", "--record").code == 0
    (plugin,) = [pod for pod in server.lists["/api/v1/pods"] if "selfLink" in pod]
    found = decode_verified(plugin["metadata"]["annotations"]["gpushare/verified"])
    assert found is not None
    quick = dict.fromkeys(("share", "accounting", "memory"), "pass")
    now = {uuid: {"exclusive": "fail", "burst": "known"} | quick, other: {"share": "fail"}}
    assert found.gpus == now
    assert found.at > before.at


def test_what_others_write_during_a_run_stays(serve: Serve, verify: Verify) -> None:
    """Results of another run, and annotations of a network plugin: the pod may have had none."""
    server = serve("driver")
    (plugin,) = [pod for pod in server.lists["/api/v1/pods"] if "selfLink" in pod]
    other = VerifiedNode(7, {uuids(server)[1]: {"burst": "fail"}})
    texts = {"cni/ip": "10.0.0.1", "gpushare/verified": encode_verified(other)}
    server.after = lambda _: plugin["metadata"].update(annotations=dict(texts))
    assert verify(server, "--only", "quick", "--record").code == 0
    (plugin,) = [pod for pod in server.lists["/api/v1/pods"] if "selfLink" in pod]
    notes = plugin["metadata"]["annotations"]
    found = decode_verified(notes["gpushare/verified"])
    assert notes["cni/ip"] == "10.0.0.1"
    assert found is not None
    assert found.gpus.keys() == set(uuids(server))


@pytest.mark.parametrize(
    ("now", "stays"), [("skip", "fail"), ("pass", "pass"), ("known", "known"), ("fail", "fail")]
)
def test_a_row_that_was_skipped_says_nothing_new(now: str, stays: str) -> None:
    """Its earlier result is the last one; a row without one is known as skipped."""
    before = VerifiedNode(1, {"a": {"memory": "fail"}})
    found = joined(before, VerifiedNode(2, {"a": {"memory": now, "share": "skip"}}), {"0": "a"})
    assert found == VerifiedNode(2, {"a": {"memory": stays, "share": "skip"}})


@pytest.mark.parametrize("right", ["patch pods", "create events"])
def test_who_may_not_record_results_learns_it_before_anything_is_created(
    serve: Serve, verify: Verify, right: str
) -> None:
    """Not after a run of up to 15 minutes; without --record it needs neither."""
    server = serve("driver")
    server.denied = {right}
    outcome = verify(server, "--only", "share", "--record")
    where = "default" if right == "create events" else "gpushare"
    assert f"your credentials may not: {right} -n {where}; nothing" in " ".join(outcome.err.split())
    assert (outcome.code, server.created) == (1, [])
    assert verify(server, "--only", "share").code == 0


def test_results_that_cannot_be_recorded_are_an_error(serve: Serve, verify: Verify) -> None:
    """A CronJob whose metrics are stale must fail, though every row holds."""
    server = serve("driver")
    server.lists["/api/v1/pods"][-1].pop("selfLink")
    outcome = verify(server, "--only", "quick", "--record")
    assert outcome.code == 1
    assert "the results of node n1 are not recorded" in " ".join(outcome.err.split())


def test_a_tenants_pod_that_looks_like_a_plugin_gives_no_image() -> None:
    """Its image would run with the operator's rights to pods, and its pod would get the results."""
    forged = plugin_pod("a", "n1", namespace="a-tenant", kubelet="")
    forged["spec"]["containers"][0]["image"] = "registry.example.com/forged"
    found = decode(listed([forged]).encode())
    with pytest.raises(InspectError):
        image_on(found, "n1")
    own = plugin_pod("plugin", "n1")
    own["spec"]["containers"][0]["image"] = "registry.example.com/own"
    found = decode(listed([forged, own, forged]).encode())
    assert image_on(found, "n1") == "registry.example.com/own"
    assert plugin_pods(found)["n1"].name == "plugin"


def test_a_plugin_that_does_not_run_gives_no_image_and_takes_no_results() -> None:
    """Its image may be one that the node cannot pull."""
    found = decode(listed([plugin_pod("plugin", "n1", phase="Pending")]).encode())
    assert plugin_pods(found) == {}


def test_a_node_without_a_plugin_has_no_place_for_results(serve: Serve, verify: Verify) -> None:
    """With --image a run needs no plugin's pod; the error names what is missing."""
    server = serve("driver")
    server.lists["/api/v1/pods"].clear()
    outcome = verify(server, "--only", "quick", "--record", "--image", "registry.example.com/own")
    assert outcome.code == 1
    words = "the results of node n1 are not recorded: no device plugin of gpushare runs there"
    assert words in " ".join(outcome.err.split())


def _arrives(server: VerifyingServer, row: str, units: int) -> None:
    """A pod of a tenant comes to GPU 0 while the first pod of a row runs."""
    (theirs,) = FakeCluster().pod("theirs", units, node="n1", index=0).items

    def arrive(pod: dict[str, Any]) -> None:
        pods = server.lists["/api/v1/pods"]
        if pod["metadata"]["name"].startswith(row) and theirs not in pods:
            pods.append(theirs)

    server.after = arrive


def _preempted(server: VerifyingServer, pod: dict[str, Any]) -> None:
    """The scheduler deletes the pod for another one."""
    server.ended(pod["metadata"]["name"])
    pod["metadata"]["deletionTimestamp"] = server.clock


def _evicted(server: VerifyingServer, pod: dict[str, Any]) -> None:
    """Kubelet ended the pod for want of memory of the node."""
    server.ended(pod["metadata"]["name"])
    words = {"message": "the node was low on resource: memory"}
    pod["status"] |= {"conditions": [{"type": "DisruptionTarget", "status": "True", **words}]}


def _refused(server: VerifyingServer, pod: dict[str, Any]) -> None:
    """The device plugin refused the pod."""
    server.ended(pod["metadata"]["name"])
    pod["status"] |= {"phase": "Failed", "reason": "UnexpectedAdmissionError"}


@pytest.mark.parametrize(
    ("ended", "verdict", "words"),
    [
        (_preempted, "skip", "was deleted during the row"),
        (_evicted, "skip", "low on resource: memory"),
        (_refused, "fail", "ended before"),
    ],
)
def test_a_pod_that_others_ended_is_no_fault_of_the_gpu(
    ended: Callable[..., None], verdict: str, words: str, serve: Serve, verify: Verify
) -> None:
    """Others have priority over it; that the device plugin refuses it is a fault."""
    server = serve("driver")
    server.after = lambda pod: ended(server, pod)
    row = verify.rows(server, "--only", "share")["share"]
    assert (row["verdict"], words in row["seen"]) == (verdict, True), row


@pytest.mark.parametrize("row", ["share", "neighbour"])
def test_a_pod_that_comes_during_the_run_is_not_disturbed(
    row: str, serve: Serve, verify: Verify
) -> None:
    """Rows that load or crash a GPU look for other pods when they begin, and before the crash."""
    server = serve("driver")
    _arrives(server, row, 2)
    rows = verify.rows(server, "--only", "share,neighbour,health,sharing,overhead")
    assert verdicts(rows) == dict.fromkeys(rows, "skip") | {"share": "pass"}, rows
    assert not [path for path in server.created if "/pods/offender" in path]


def test_a_gpu_that_becomes_full_during_the_run_is_left_alone(serve: Serve, verify: Verify) -> None:
    """The row that comes next is skipped with what it would need."""
    server = serve("driver")
    _arrives(server, "share", 12)
    rows = verify.rows(server, "--only", "share,processes")
    assert verdicts(rows) == {"share": "pass", "processes": "skip"}, rows
