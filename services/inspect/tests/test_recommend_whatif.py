"""``gpushare recommend --whatif``: the cluster placed anew with the recommended sizes."""

import json
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run
from measuredworkloads import history, written

from gpucore.sizing.usage_history import UsageHistory
from gpucore.wire.names import GANG, GANG_REPLICA


def owned(name: str, kind: str = "ReplicaSet") -> dict[str, Any]:
    """Metadata of a pod of the Deployment."""
    owner = {"kind": kind, "name": f"{name}-7f8d", "controller": True}
    return {"ownerReferences": [owner], "labels": {"pod-template-hash": "7f8d"}}


@pytest.fixture
def full(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 16 GiB, both held by pods of web, and a third pod of api that waits."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    for index in range(2):
        cluster.pod(f"web-{index}", 12, node="n", index=index, metadata=owned("web"))
    return cluster.pod("api", 12, phase="Pending", metadata=owned("api"))


def effect(
    run: Run,
    cluster: FakeCluster,
    folder: Path,
    *histories: UsageHistory,
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The document for the cluster with what was measured."""
    path = written(folder / "history", histories)
    line = ("recommend", "--whatif", "--history", str(path), "-o", "json", *flags)
    found: dict[str, Any] = json.loads(run(*line, on=cluster).out)
    return found


WEB = history("web", 3, 5, requested=12, container="c0")


def test_smaller_sizes_free_a_gpu_and_a_waiting_pod_fits(
    run: Run, full: FakeCluster, tmp_path: Path
) -> None:
    """Two pods of 6 GiB share one GPU; with 12 they need two, however they are placed."""
    found = effect(run, full, tmp_path, WEB, flags=("--price=2",))
    assert (found["gpusInUse"], found["gpusSameSizes"], found["gpusRecommended"]) == (2, 2, 1)
    assert (found["gpusFreed"], found["podsResized"], found["cost"]) == (1, 2, 1460.0)
    assert (found["podsPending"], found["fittingNow"], found["fitting"]) == (1, 0, ["default/api"])


def test_a_waiting_pod_counts_with_its_own_recommended_size(
    run: Run, full: FakeCluster, tmp_path: Path
) -> None:
    """4 GiB fit beside 12 on one GPU; also by kube-scheduler's own count of the node."""
    full.pod("huge", 40, phase="Pending", metadata=owned("huge"))
    small = history("huge", 3, requested=40, container="c0")
    found = effect(run, full, tmp_path, small)
    assert (found["podsResized"], found["fitting"]) == (0, ["default/huge"])


@pytest.mark.parametrize(
    "first",
    [
        {"spec": {"priority": 9}},
        {"metadata": {**owned("first"), "creationTimestamp": "2025-01-02T03:04:05Z"}},
    ],
    ids=["priority", "age"],
)
def test_pods_that_wait_come_in_the_order_of_the_queue(
    run: Run, full: FakeCluster, tmp_path: Path, first: dict[str, Any]
) -> None:
    """Not in that of their names: the pod whose turn it is takes the GPU that is freed."""
    full.pod("first", 16, phase="Pending", **{"metadata": owned("first"), **first})
    assert effect(run, full, tmp_path, WEB)["fitting"] == ["default/first"]


@pytest.mark.parametrize(
    ("size", "fitting"), [(2, ["default/g-0", "default/g-1"]), (3, []), (4, [])]
)
def test_pods_of_a_gang_fit_together_or_not_at_all(
    run: Run, full: FakeCluster, tmp_path: Path, size: int, fitting: list[str]
) -> None:
    """Two of them fit into what is freed: a gang of two fits, one of three does not.

    Of one of four a pod is missing, so that none of its pods takes the room of another pod.
    """
    labels = {GANG: "g", GANG_REPLICA: str(size)}
    pods = {2: 2, 3: 3, 4: 3}[size]
    full.items = [item for item in full.items if item["metadata"]["name"] != "api"]
    for number in range(pods):
        full.pod(f"g-{number}", 8, phase="Pending", metadata={"labels": labels})
    if size == 4:
        full.pod("late", 8, phase="Pending")
        fitting = ["default/late"]
    found = effect(run, full, tmp_path, WEB)
    assert (found["podsPending"], found["fitting"]) == (pods + (size == 4), fitting)


def test_sizes_that_are_right_free_nothing(run: Run, full: FakeCluster, tmp_path: Path) -> None:
    """The cluster stays as it is."""
    found = effect(run, full, tmp_path, history("web", 10, 10.4, requested=12, container="c0"))
    assert (found["gpusFreed"], found["podsResized"], found["fitting"]) == (0, 0, [])


def test_what_placing_anew_alone_frees_is_shown_apart(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Two pods of 4 GiB on two GPUs fit on one without any other size."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    cluster.pod("a", 4, node="n", index=0).pod("b", 4, node="n", index=1)
    found = effect(run, cluster, tmp_path, WEB)
    assert (found["gpusInUse"], found["gpusSameSizes"], found["gpusRecommended"]) == (2, 1, 1)


def test_pods_of_daemonsets_stay_where_they_are(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """They have a pod on every node."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    for index in range(2):
        metadata = owned("agent", "DaemonSet")
        cluster.pod(f"agent-{index}", 4, node="n", index=index, metadata=metadata)
    found = effect(run, cluster, tmp_path, WEB)
    assert (found["gpusInUse"], found["gpusSameSizes"], found["gpusRecommended"]) == (2, 2, 2)


def test_units_of_several_gpus_are_a_multiple(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """7 units over two GPUs would be refused: 8 are placed, 4 on each."""
    cluster.node("n", gpus=[Gpu(4), Gpu(4)])
    metadata = owned("web")
    metadata["labels"]["aliyun.com/gpu-count"] = "2"
    cluster.pod("web", 8, node="n", index=None, metadata=metadata)
    found = effect(run, cluster, tmp_path, history("web", 6, requested=8, container="c0"))
    assert (found["unplaced"], found["gpusRecommended"]) == ([], 2)


def test_containers_that_were_measured_together_are_resized_together(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """A pod of 6 and 6 GiB needs 4 in all: then two of them share a GPU of 12."""
    cluster.node("n", gpus=[Gpu(12), Gpu(12)])
    for index in range(2):
        cluster.pod(f"web-{index}", (6, 6), node="n", index=index, metadata=owned("web"))
    found = effect(run, cluster, tmp_path, history("web", 3, requested=12, container=""))
    assert (found["podsResized"], found["gpusRecommended"], found["unplaced"]) == (2, 1, [])


def test_burst_limits_beyond_the_memory_of_a_gpu_are_counted(
    run: Run, full: FakeCluster, tmp_path: Path
) -> None:
    """Two pods that request 4 and may use 10 share a GPU of 16."""
    bursting = history("web", *[3] * 19, 8, requested=12, limit=16, container="c0")
    found = effect(run, full, tmp_path, bursting)
    assert (found["gpusRecommended"], found["gpusOvercommitted"]) == (1, 1)
    assert any("on 1 GPU the burst limits together" in note for note in found["notes"])


def test_the_share_of_a_sidecar_keeps_its_size(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Its burst limit counts too: two pods that request 6 and may use 12 share a GPU of 16."""
    cluster.node("n", gpus=[Gpu(16, mode="driver")])
    resources = {"limits": {"aliyun.com/gpu-mem": "6"}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": resources}
    for index in range(2):
        cluster.pod(
            f"web-{index}",
            node="n",
            index=0,
            annotations={"gpushare/memory-limit": "12"},
            metadata=owned("web"),
            spec={"initContainers": [sidecar]},
        )
    smaller = history("web", *[1] * 19, 2, requested=6, limit=12, container="")
    found = effect(run, cluster, tmp_path, smaller)
    assert (found["podsResized"], found["gpusOvercommitted"]) == (0, 1)


def test_a_pod_that_finds_no_place_is_named(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """Its node is cordoned now: the figure would be too good without it."""
    cluster.node("n", gpus=[Gpu(16)], cordoned=True).pod("web", 12, node="n", index=0)
    found = effect(run, cluster, tmp_path, WEB)
    assert found["unplaced"] == ["default/web"]
    assert any("1 running pod found no place" in note for note in found["notes"])


def test_that_common_peaks_are_unknown_is_stated(
    run: Run, full: FakeCluster, tmp_path: Path
) -> None:
    """Not left out."""
    found = effect(run, full, tmp_path, WEB)
    assert found["peaksTogether"] is None
    assert any("whose peaks come together is not known" in note for note in found["notes"])


def test_people_get_a_table_and_the_gain(run: Run, full: FakeCluster, tmp_path: Path) -> None:
    """The notes are on standard error."""
    path = str(written(tmp_path / "history", [WEB]))
    outcome = run("recommend", "--whatif", "--price=2", "--history", path, on=full)
    assert outcome.out.splitlines() == [
        "PODS PLACED        GPUS IN USE  PENDING PODS THAT FIT",
        "as they are        2 of 2       0 of 1",
        "anew, same sizes   2 of 2       0 of 1",
        "anew, recommended  1 of 2       1 of 1",
        "",
        "GPUs freed: 1, with 2 pods resized; 1460.00 in a month of 730 hours",
        "Pending pods that would fit in addition: 1",
    ]
    assert "note: a figure, not a plan" in outcome.err


def test_a_gpu_that_its_node_has_no_more_is_not_counted(
    run: Run, full: FakeCluster, tmp_path: Path
) -> None:
    """Its pod keeps the record of it; smaller sizes would free one GPU of two, not two of three."""
    full.pod("web-2", 12, node="n", index=7, metadata=owned("web"))
    found = effect(run, full, tmp_path, history("web", 3, 4, requested=12, container="c0"))
    assert (found["gpus"], found["gpusInUse"], found["gpusFreed"]) == (2, 2, 1)
