"""The device plugin has the rights that it uses, and no others, in each mode of the chart."""

from pathlib import Path

import pytest
from charting import render
from chartrights import Authorizer, ChartRight, rights_of
from stage import Stage
from test_claims_backend import CLAIMS, DEVICES, ClaimStage
from test_gpu_loss import unhealthy

pytestmark = pytest.mark.slow

REPLACED = {
    ChartRight("get", "resource.k8s.io", "resourceslices"),
    ChartRight("patch", "resource.k8s.io", "resourceslices"),
}
"""A slice that another client creates or changes at the same moment is read and written again."""


def authorized(stage: Stage, **values: object) -> Authorizer:
    """The account of the chart, by which the API server of the stage permits requests."""
    chart = render("1.37.0", values)
    authorizer = Authorizer(rights_of(chart, "gpushare-device-plugin"))
    stage.cluster.permits = authorizer.permits
    return authorizer


@pytest.mark.parametrize("maps", [False, True])
async def test_a_plugin_with_devices_has_the_rights_that_it_uses(
    tmp_path: Path, *, maps: bool
) -> None:
    """It publishes, corrects a pod, and lists, changes and forgets unhealthy GPUs."""
    stage = Stage(tmp_path, unhealthy_configmap=maps)
    authorizer = authorized(stage, devicePlugin={"unhealthyConfigMap": maps})
    async with stage:
        await stage.offered(30)
        stage.create("stray", {"gpu-mem": 3})
        await stage.admitted("stray")
        await stage.eventually(lambda: stage.reasons("stray") == ["GpuShareAdopted"])
        if maps:
            for gpu, text in zip(stage.driver.gpus, ("0", "0,1"), strict=True):
                stage.driver.lost.add(gpu.uuid)
                await stage.eventually(lambda text=text: unhealthy(stage) == text)  # type: ignore[misc]
            stage.driver.lost.clear()
            await stage.eventually(lambda: not unhealthy(stage))
    assert authorizer.refused == set()
    assert authorizer.unused == set()


async def test_a_plugin_with_claims_has_the_rights_that_it_uses(tmp_path: Path) -> None:
    """It publishes a slice, prepares a claim, taints a GPU, and removes the slice."""
    stage = ClaimStage(tmp_path)
    stage.labels = CLAIMS
    authorizer = authorized(stage, claims={"enabled": True})
    async with stage:
        await stage.claims_offered()
        kubelet = await stage.kubelet_of_claims()
        stage.claim("a")
        await kubelet.prepare("a")
        await kubelet.unprepare("a")
        stage.driver.lost.add(stage.driver.gpus[0].uuid)
        await stage.eventually(lambda: "taints" in str(stage.slices()))
        stage.label(**DEVICES)
        await stage.no_claims_offered()
    assert authorizer.refused == set()
    assert authorizer.unused <= REPLACED | {ChartRight("patch", "", "pods")}
