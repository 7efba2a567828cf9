"""What-if and explain name the profile of the scheduler that a pod gets."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.defrag.reading import defrag_state
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed

EXACT, BURST = "gpushare-scheduler", "gpushare-scheduler-burst"
FLAGS = [
    "--candidates=1",
    "--percentage-of-nodes=100",
    f"--webhook-scheduler={EXACT}",
    f"--burst-scheduler={BURST}",
    "--burst-pods=8",
]
REFUSED = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def cluster(*, nodes: int = 101, waiting: int = 0, webhook: str = "gpushare") -> FakeCluster:
    """Nodes with GPUs, an extender with two profiles, and pods that wait."""
    found = FakeCluster()
    for number in range(nodes):
        found.node(f"n{number:03}", gpus=[Gpu(15)])
    labels = {"app.kubernetes.io/component": "scheduler"}
    box = {"name": "extender", "args": FLAGS}
    found.pod("x", metadata={"labels": labels}, spec={"containers": [box]})
    found.add({"kind": "MutatingWebhookConfiguration", "metadata": {"name": webhook}})
    for number in range(waiting):
        found.pod(f"w{number}", 1, phase="Pending", spec={"schedulerName": EXACT})
    return found


def pods(tmp_path: Path, replicas: int = 1, **spec: Any) -> str:
    """A Deployment in a file."""
    box = {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": 2}}}
    template = {"spec": {**spec, "containers": [box]}}
    item = {"replicas": replicas, "template": template}
    path = tmp_path / "pods.yaml"
    text = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": item}
    path.write_text(json.dumps(text))
    return str(path)


def whatif(run: Run, on: FakeCluster, file: str) -> list[dict[str, Any]]:
    """The answers about the pods of a file."""
    document = json.loads(run("whatif", "-f", file, "-o", "json", on=on).out)
    return list(document["items"])


@pytest.mark.parametrize(
    ("waiting", "scheduler", "reasons"),
    [
        (2, EXACT, []),
        (3, EXACT, ["while a burst lasts kube-scheduler evaluates 100 of 101 nodes"]),
        (
            9,
            BURST,
            [
                f"kube-scheduler evaluates 100 of 101 nodes, as profile {BURST} does: "  # noqa: ISC004
                "9 pods wait before this one"
            ],
        ),
    ],
)
def test_whatif_names_the_profile_by_the_pods_that_wait(
    run: Run, tmp_path: Path, waiting: int, scheduler: str, reasons: list[str]
) -> None:
    """Certain while no burst can last, and with the reason why the answer is not."""
    (found,) = whatif(run, cluster(waiting=waiting), pods(tmp_path))
    assert (found["scheduler"], found["likelyBecause"]) == (scheduler, reasons)


def test_the_dashboard_names_a_place_that_is_only_likely() -> None:
    """As the command does, and with the reason."""
    raw = cluster(waiting=9).json().encode()
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    text = TestClient(make_app(feed)).get("/whatif", params={"mem": "2"}).text
    assert "likely 2 GiB on GPU 0 of node n000" in text
    assert "Likely, not certain: kube-scheduler evaluates 100 of 101 nodes, as profile" in text


def test_many_new_pods_are_a_burst_themselves(run: Run, tmp_path: Path) -> None:
    """Those behind the first eight."""
    found = whatif(run, cluster(), pods(tmp_path, 10))
    assert [each["scheduler"] for each in found] == [EXACT] * 9 + [BURST]
    assert [each["likely"] for each in found] == [False] * 9 + [True]


def test_pods_that_fit_nowhere_do_not_make_a_burst(run: Run, tmp_path: Path) -> None:
    """They wait for something else than their turn."""
    on = cluster()
    for number in range(20):
        on.pod(f"r{number}", 99, phase="Pending", spec={"schedulerName": EXACT}, status=REFUSED)
    (found,) = whatif(run, on, pods(tmp_path))
    assert (found["scheduler"], found["likely"]) == (EXACT, False)


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "c", "resourceClaimName": "missing"}]},
        {"schedulingGroup": {"podGroupName": "never-complete"}},
    ],
    ids=["claim", "PodGroup"],
)
def test_pods_that_kube_scheduler_may_never_try_do_not_make_a_burst(
    run: Run, tmp_path: Path, spec: dict[str, Any]
) -> None:
    """What-if counts the pods that the webhook counts."""
    on = cluster()
    for number in range(20):
        on.pod(f"r{number}", 1, phase="Pending", spec={"schedulerName": EXACT, **spec})
    (found,) = whatif(run, on, pods(tmp_path))
    assert (found["scheduler"], found["likely"]) == (EXACT, False)


@pytest.mark.parametrize("named", [EXACT, BURST])
def test_a_named_profile_is_kept(run: Run, tmp_path: Path, named: str) -> None:
    """The exact one is certain in a burst, the other one is not without."""
    file = pods(tmp_path, schedulerName=named)
    for waiting in (0, 20):
        (found,) = whatif(run, cluster(waiting=waiting), file)
        assert (found["scheduler"], found["likely"]) == (named, named == BURST)


def test_small_clusters_and_those_without_our_webhook_have_no_bursts(
    run: Run, tmp_path: Path
) -> None:
    """With a hundred nodes all are compared; without the webhook a pod keeps its name."""
    (small,) = whatif(run, cluster(nodes=100, waiting=20), pods(tmp_path))
    assert (small["scheduler"], small["likely"]) == (EXACT, False)
    (alone,) = whatif(run, cluster(waiting=20, webhook="other"), pods(tmp_path))
    assert (alone["scheduler"], alone["likely"]) == ("", False)


def test_explain_shows_that_a_pod_has_the_burst_profile(run: Run) -> None:
    """Beside its name, and only for this one."""
    on = cluster()
    on.pod("b", 1, phase="Pending", spec={"schedulerName": BURST})
    on.pod("e", 1, phase="Pending", spec={"schedulerName": EXACT})
    words = f"{BURST} (burst profile: compares 100 nodes)"
    assert words in run("explain", "pod", "b", on=on).out
    assert "burst" not in run("explain", "pod", "e", on=on).out


def test_defrag_makes_room_for_pods_of_both_profiles() -> None:
    """Both are placed by the scheduler that its flag names; others are not."""
    on = cluster(nodes=1)
    for name, scheduler in (("e", EXACT), ("b", BURST), ("o", "volcano")):
        on.pod(name, 1, phase="Pending", spec={"schedulerName": scheduler})
    state = defrag_state(
        decode(on.json().encode()),
        DEFAULT_NAMES,
        now=datetime(2027, 1, 1, tzinfo=UTC),
        waited_seconds=0,
        scheduler=EXACT,
    )
    found = {pod.name: pod.obstacle for pod in state.waiting}
    assert found == {"e": "", "b": "", "o": f"its scheduler is not {EXACT}"}
