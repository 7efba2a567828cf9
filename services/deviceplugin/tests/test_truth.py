"""Annotations and devices agree, whatever comes in whatever order."""

from pathlib import Path

import pytest
from fakedriver import FakeDriver, t4
from msgspec import json
from scheduler import FakeScheduler
from stage import Stage

from gpucore.units import GpuIndex
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import decode_pod

pytestmark = pytest.mark.slow

H200_MIB = 143771
UNITS = 140


def disagreements(stage: Stage) -> list[str]:
    """Running pods whose annotations differ from kubelet's allocations."""
    wrong = []
    for (_, name), item in stage.cluster.pods.objects.items():
        if item["status"]["phase"] != "Running":
            continue
        allocation = allocation_of(decode_pod(json.encode(item)), DEFAULT_NAMES)
        assert allocation is not None
        gpus = {GpuIndex(gpu) for gpu in stage.gpus_of(name)}
        if set(allocation.placement.mem) != gpus or allocation.state != "confirmed":
            wrong.append(
                f"{name}: states {dict(allocation.placement.mem)}, has {gpus}, {allocation.state}"
            )
    return wrong


def _shape(scheduler: FakeScheduler) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    draw = scheduler.random
    sizes = [draw.choice((1, 2, 3, 3, 7, 10, 20, 35)) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
    containers = [{"gpu-mem": size} for size in sizes]
    if draw.random() < 0.2:
        containers[0]["gpu-core.percentage"] = 2
    inits = [{"gpu-mem": draw.choice((1, 3, 12))}] if draw.random() < 0.15 else []
    return containers, inits


@pytest.mark.parametrize("count", [150])
async def test_random_pods_end_with_true_annotations(tmp_path: Path, count: int) -> None:
    """Bursts of random pods, some without a plan: no annotation differs from kubelet."""
    driver = FakeDriver(*(t4(index, memory_mib=H200_MIB) for index in range(8)))
    async with Stage(tmp_path, driver) as stage:
        await stage.offered(8 * UNITS)
        stage.cluster.watch_delay = 0.001
        assert stage.plugin is not None
        scheduler = FakeScheduler(stage.cluster, stage.plugin.state.inventory, seed=3)
        made = 0
        while made < count:
            for _ in range(14):
                containers, inits = _shape(scheduler)
                planned = scheduler.random.random() > 0.1
                made += scheduler.create(f"p{made}", containers, inits=inits, plan=planned)
            await stage.eventually(lambda: not _pending(stage), "all pods are decided")
            await stage.eventually(lambda: not disagreements(stage), "annotations are true")
            _end_some(stage, scheduler)
        refused = {name: why for name, why in stage.kubelet.rejected.items() if "clash" in why}
        assert not refused
        assert not disagreements(stage)


def _pending(stage: Stage) -> list[str]:
    pods = stage.cluster.pods.objects
    return [name for (_, name), item in pods.items() if item["status"]["phase"] == "Pending"]


def _end_some(stage: Stage, scheduler: FakeScheduler) -> None:
    names = [name for _, name in stage.cluster.pods.objects]
    for name in scheduler.random.sample(names, k=len(names) // 2):
        scheduler.end(name)
