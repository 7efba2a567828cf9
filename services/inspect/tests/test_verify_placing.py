"""Pods of ``gpushare verify`` on one certain GPU: what is noticed when it is another one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster import snapshots
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.verify.placing import FILLERS, PLACES, GpuPods
from gpuinspect.verify.site import PodFailedError, waiting_reason
from gpuinspect.verify.targets import ProofTarget, device_now, target_now, targets

Object = dict[str, Any]
IDX = "ALIYUN_COM_GPU_MEM_IDX"


class OnePodSite:
    """A site whose pods are all bound with these annotations, one set after the other."""

    def __init__(self, *annotations: Mapping[str, str]) -> None:
        self.annotations = list(annotations)
        self.created: list[str] = []
        self.deleted: list[str] = []

    def create(self, row: str, plan: Sequence[Any], limits: Any, **_: Any) -> str:
        self.created.append(row)
        return f"{row}-{len(self.created)}"

    def delete(self, name: str) -> None:
        self.deleted.append(name)

    def bound(self, name: str) -> Object:
        found = self.annotations.pop(0) if len(self.annotations) > 1 else self.annotations[0]
        return {"metadata": {"name": name, "annotations": dict(found)}}

    pod = bound

    def wait(self, done: Callable[[], bool], what: str, seconds: float = 0) -> None:
        if not done():
            raise PodFailedError(what)


def read(tmp_path: Path, cluster: FakeCluster) -> Callable[[], Snapshot]:
    """The cluster as it is drawn."""
    path = tmp_path / "snapshot.json"
    path.write_text(cluster.json())
    return lambda: snapshots.read(path)


def target_of(cluster: Callable[[], Snapshot], gpu: int | None = None) -> ProofTarget:
    """The GPU to verify."""
    (found,) = targets(cluster(), DEFAULT_NAMES, gpu=gpu)
    return found


def pods(site: OnePodSite, target: ProofTarget, cluster: Callable[[], Snapshot]) -> GpuPods:
    """The pods of a row."""
    return GpuPods(site, target, DEFAULT_NAMES, cluster)  # type: ignore[arg-type]


def test_the_emptiest_gpu_of_each_model_is_verified(tmp_path: Path) -> None:
    """The first of equal ones; what pods hold is not free."""
    gpus = [Gpu(16), Gpu(16), Gpu(40, "A100"), Gpu(40, "A100", healthy=False)]
    cluster = FakeCluster().node("n1", gpus=gpus).pod("p", 4, node="n1", index=0)
    cluster.node("n2", gpus=[Gpu(16)], cordoned=True)
    found = targets(read(tmp_path, cluster)(), DEFAULT_NAMES)
    assert [(one.node, one.index, one.free, one.empty) for one in found] == [
        ("n1", 1, 16, True),
        ("n1", 2, 40, True),
    ]


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        ({"aliyun.com/gpu": "1"}, {"ALIYUN_COM_GPU_GROUP": "0"}),
        ({"aliyun.com/gpu-mem": "1"}, {IDX: "0", "gpushare/exclusive": "true"}),
    ],
    ids=["exclusive", "share"],
)
def test_a_gpu_that_one_pod_has_alone_is_not_the_emptiest(
    tmp_path: Path, limits: Mapping[str, str], annotations: Mapping[str, str]
) -> None:
    """However few of its units are requested, none of them is free."""
    drawn = FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)])
    drawn.pod("p", node="n1", limits=limits, annotations=annotations)
    cluster = read(tmp_path, drawn.pod("q", 4, node="n1", index=1))
    found = target_of(cluster)
    assert (found.index, found.free) == (1, 12)
    assert target_of(cluster, gpu=0).free == 0


def test_a_gpu_with_as_many_pods_as_its_node_permits_is_full(tmp_path: Path) -> None:
    """Whatever is left of its memory: no pod of a check would be placed there."""
    drawn = FakeCluster().node("n1", gpus=[Gpu(16)], labels={"ack.node.gpu.max-pod": "1"})
    cluster = read(tmp_path, drawn.pod("p", 1, node="n1", index=0))
    assert target_of(cluster).refusal.startswith("GPU 0 of node n1 has 0 of 16 units free")


def test_mig_instances_are_no_pair_of_exclusive_gpus(tmp_path: Path) -> None:
    """A container with several GPUs needs GPUs without MIG: one of these is free."""
    gpus = [Gpu(16), Gpu(16), Gpu(8, mode="mig"), Gpu(8, mode="mig")]
    cluster = FakeCluster().node("n1", gpus=gpus).pod("p", 4, node="n1", index=0)
    assert target_of(read(tmp_path, cluster)).free_gpus == 1


def test_a_link_of_no_pair_of_gpus_is_left_out(tmp_path: Path) -> None:
    """An inventory with an odd key is verified like any other."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)])
    notes = cluster.items[0]["metadata"]["annotations"]
    inventory = msgspec.json.decode(notes["gpushare/inventory"])
    inventory["links"] = {"0-x": ["NV1"], "0": ["NV1"], "0-1": ["SYS", "NV4"]}
    notes["gpushare/inventory"] = msgspec.json.encode(inventory).decode()
    assert target_of(read(tmp_path, cluster)).links == {(0, 1): (4, "SYS+NV4")}


def test_a_gpu_that_the_plugin_corrected_is_named(tmp_path: Path) -> None:
    """The scheduler chose one, kubelet allocated another."""
    cluster = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)]))
    bound, corrected = {IDX: "0"}, {IDX: "1", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    row = pods(OnePodSite(bound, corrected), target_of(cluster), cluster)
    name = row.start("share", (), 4)
    with pytest.raises(PodFailedError, match="allocated GPU 1 where the scheduler chose GPU 0"):
        row.confirmed(name)


def test_a_gpu_of_others_is_named_and_no_fault_of_the_share(tmp_path: Path) -> None:
    """Pods came or went between each look and its bind."""
    cluster = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)]))
    site = OnePodSite({IDX: "1"})
    row = pods(site, target_of(cluster), cluster)
    with pytest.raises(PodFailedError, match="on GPU 1, not on GPU 0"):
        row.start("share", (), 4)
    assert len(site.created) == len(site.deleted) == PLACES


def test_a_pod_that_another_pod_led_elsewhere_is_placed_again(tmp_path: Path) -> None:
    """A pod that came between the look and the bind is no fault of the GPU."""
    cluster = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)]))
    site = OnePodSite({IDX: "1"}, {IDX: "0"})
    row = pods(site, target_of(cluster), cluster)
    assert row.start("share", (), 4) == "share-2"
    assert site.deleted == ["share-1"]
    row.clear()
    assert site.deleted == ["share-1", "share-2"]


def test_a_gpu_that_became_unhealthy_is_named(tmp_path: Path) -> None:
    """No filler is created for it."""
    before = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)]))
    target, site = target_of(before), OnePodSite({IDX: "0"})
    ill = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16, healthy=False), Gpu(16)]))
    with pytest.raises(PodFailedError, match="GPU 0 is gone, or not healthy any more"):
        pods(site, target, ill).start("share", (), 4)
    assert not site.created


def test_fillers_end_where_no_policy_leads_to_the_gpu(tmp_path: Path) -> None:
    """They are deleted with the row."""
    cluster = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16), Gpu(16)]))
    site = OnePodSite({IDX: "0"})
    row = pods(site, target_of(cluster, gpu=1), cluster)
    with pytest.raises(PodFailedError, match="no placement policy leads to GPU 1"):
        row.start("share", (), 4)
    assert site.created == ["filler"] * FILLERS
    row.clear()
    assert len(site.deleted) == FILLERS


def test_why_a_pod_does_not_run_is_in_the_words_of_kubelet_or_the_scheduler() -> None:
    """The container's state first, then the pod's message and its conditions."""
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    condition = {"status": "False", "message": "0/1 nodes are available"}
    assert waiting_reason({"status": {"containerStatuses": [waiting]}}) == "ErrImagePull not found"
    assert waiting_reason({"status": {"message": "evicted"}}) == "evicted"
    assert waiting_reason({"status": {"conditions": [condition]}}) == condition["message"]
    assert waiting_reason({"status": {"phase": "Pending"}}) == "phase Pending"


def test_a_share_leaves_memory_to_try_more_than_it() -> None:
    """Two thirds of what is free, at most 4 GiB and at least 2 GiB."""
    values = {"node": NodeName("n"), "index": GpuIndex(0), "uuid": "", "model": "", "mode": "none"}
    more = {"driver": "", "memory_mib": 0, "total": 99, "core_free": 0, "empty": True}
    for unit, free, share in ((1024, 99, 4), (1024, 3, 2), (1024, 4, 2), (512, 9, 6)):
        target = ProofTarget(**values, **more, unit_mib=unit, free=free)  # type: ignore[arg-type]
        assert (target.share, target.refusal) == (share, "")
    short = ProofTarget(**values, **more, unit_mib=1024, free=2)  # type: ignore[arg-type]
    assert "needs 3 units (3072 MiB)" in short.refusal
    large = ProofTarget(**values, **more, unit_mib=3072, free=1)  # type: ignore[arg-type]
    assert "needs 2 units (6144 MiB)" in large.refusal


def test_another_gpu_at_the_index_is_not_the_one_that_is_verified(tmp_path: Path) -> None:
    """The driver counted the GPUs anew during the run: results would be those of another GPU."""
    cluster = read(tmp_path, FakeCluster().node("n1", gpus=[Gpu(16)]))
    target = msgspec.structs.replace(target_of(cluster), uuid="GPU-before", free=9)
    site = OnePodSite({IDX: "0"})
    with pytest.raises(PodFailedError, match="GPU 0 is gone, or not healthy any more"):
        pods(site, target, cluster).start("share", (), 4)
    assert site.created == []
    assert device_now(cluster(), DEFAULT_NAMES, target) is None
    assert target_now(cluster(), DEFAULT_NAMES, target).free == 9
