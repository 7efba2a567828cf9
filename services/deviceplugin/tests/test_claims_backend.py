"""A node that offers its GPUs as claims: the whole plugin, an API server and both kubelets."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakedra.kubelet import DraKubelet
from fakedriver import t4
from stage import Stage

from gpucore.model import Gpu
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.claim.devices import device_name
from gpucore.wire.names import CLAIM_DRIVER

pytestmark = pytest.mark.slow

SLICE = f"n1-{CLAIM_DRIVER}"
ENABLED = {"claims": True}


def name_of(index: int) -> str:
    """The device of a GPU of the stage."""
    return device_name(Gpu(GpuIndex(index), GpuUuid(t4(index).uuid), 15))


class ClaimStage(Stage):
    """A stage with kubelet's directories for DRA drivers."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.registry = root / "plugins_registry"
        directories = {
            "plugins_registry": self.registry,
            "plugins_dir": root / "plugins",
            "cdi_dir": root / "cdi",
        }
        super().__init__(root, **{**directories, **ENABLED, **settings})

    def slices(self) -> list[dict[str, Any]]:
        """The published ResourceSlices."""
        return self.cluster.all("resourceslices")

    def effects(self) -> list[str]:
        """The taints of the devices of the slice."""
        (found,) = self.slices()
        taints = [each.get("taints", ()) for each in found["spec"]["devices"]]
        return [taint["effect"] for each in taints for taint in each]

    async def claims_offered(self) -> None:
        """Until the slice is published."""
        await self.eventually(self.slices, "a ResourceSlice")

    async def no_claims_offered(self) -> None:
        """Until there is no slice."""
        await self.eventually(lambda: not self.slices(), "no ResourceSlice")

    async def kubelet_of_claims(self) -> DraKubelet:
        """The part of kubelet that prepares claims, which has found the driver."""
        await self.eventually(lambda: any(self.registry.glob("*-reg.sock")), "a driver")
        kubelet = DraKubelet(self.registry)
        await kubelet.register()
        return kubelet

    def claim(self, uid: str, gpu: int = 0, gib: int = 4, **more: Any) -> None:
        """kube-scheduler has allocated the claim ``c-<uid>`` of namespace ``team``."""
        result = {
            "request": "gpu",
            "driver": CLAIM_DRIVER,
            "pool": "n1",
            "device": name_of(gpu),
            "shareID": f"share-{uid}",
            "consumedCapacity": {"memory": f"{gib}Gi", "compute": "0"},
        }
        allocation = {"devices": {"results": [result]}}
        reserved = [{"resource": "pods", "name": f"p-{uid}", "uid": f"uid-p-{uid}"}]
        self.cluster.stores["resourceclaims"].put(
            {
                "metadata": {"name": f"c-{uid}", "namespace": "team", "uid": uid},
                "status": {"allocation": allocation, "reservedFor": reserved, **more},
            }
        )

    def files(self) -> set[str]:
        """UIDs of the claims with a CDI file."""
        names = (path.name for path in (self.root / "cdi").glob("gpushare.io-claim_*.json"))
        return {name.removeprefix("gpushare.io-claim_").removesuffix(".json") for name in names}


CLAIMS = {"gpushare": "true", "gpushare/api": "claims"}
DEVICES = {"gpushare": "true"}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ClaimStage]:
    """A node whose label chooses claims."""
    made = ClaimStage(tmp_path)
    made.labels = CLAIMS
    async with made:
        yield made


async def test_a_node_with_the_label_offers_claims_and_no_devices(stage: ClaimStage) -> None:
    """Kubelet is registered with once, by the DRA driver; schedulers see no devices."""
    await stage.claims_offered()
    (found,) = stage.slices()
    assert found["metadata"]["name"] == SLICE
    assert {each["name"] for each in found["spec"]["devices"]} == {name_of(0), name_of(1)}
    assert not stage.kubelet.manager.healthy.get("aliyun.com/gpu-mem")
    await stage.eventually(lambda: stage.inventory().get("api") == "claims", "the inventory")
    assert stage.inventory()["serving"] is False
    assert stage.plugin is not None
    await stage.kubelet_of_claims()
    await stage.eventually(lambda: stage.plugin.missing() == "", "readiness")  # type: ignore[union-attr]


async def test_the_settings_choose_order_and_taint(tmp_path: Path) -> None:
    """The policy of the cluster orders the devices; pods on an unhealthy GPU can be evicted."""
    made = ClaimStage(tmp_path, policy="spread", unhealthy_claims="evict")
    made.labels = CLAIMS
    async with made as stage:
        await stage.claims_offered()
        kubelet = await stage.kubelet_of_claims()
        stage.claim("a", gib=7)
        await kubelet.prepare("a")
        spread = [name_of(1), name_of(0)]

        def order() -> list[str]:
            return [each["name"] for found in stage.slices() for each in found["spec"]["devices"]]

        await stage.eventually(lambda: order() == spread, "the GPU with the share is the last")
        assert stage.plugin is not None
        stage.driver.lost.add(t4(0).uuid)
        await stage.eventually(lambda: stage.effects() == ["NoExecute"], "a taint that evicts")


async def test_a_gpu_whose_mps_daemon_fails_takes_no_claims_and_evicts_no_pod(
    tmp_path: Path,
) -> None:
    """Clients of its server work on; a container that keeps the control program open is enough."""
    mps = {"mps_root": str(tmp_path / "mps"), "mps_control": "false", "mps": True}
    made = ClaimStage(tmp_path, unhealthy_claims="evict", **mps)
    made.labels = CLAIMS
    async with made as stage:
        await stage.claims_offered()
        await stage.eventually(lambda: stage.effects() == ["NoSchedule"] * 2, "taints")
        stage.driver.lost.add(t4(0).uuid)
        await stage.eventually(
            lambda: sorted(stage.effects()) == ["NoExecute", "NoSchedule"], "a taint that evicts"
        )


async def test_two_claims_on_one_gpu_are_prepared_and_unprepared(stage: ClaimStage) -> None:
    """Each has its own CDI file; the node counts what they hold of the GPU."""
    await stage.claims_offered()
    kubelet = await stage.kubelet_of_claims()
    stage.claim("a", gib=7)
    stage.claim("b", gib=8)
    answer = await kubelet.prepare("a", "b")
    assert [answer[uid].error for uid in ("a", "b")] == ["", ""]
    assert stage.files() == {"a", "b"}
    assert stage.plugin is not None
    assert stage.plugin.state.in_use(GpuIndex(0))
    assert not stage.plugin.state.granted(GpuIndex(0))
    await kubelet.unprepare("a", "b")
    assert stage.files() == set()
    assert not stage.plugin.state.in_use(GpuIndex(0))


async def test_a_prepared_claim_changes_the_order_of_the_devices(stage: ClaimStage) -> None:
    """Binpack lists the GPU first that is used already."""
    await stage.claims_offered()
    kubelet = await stage.kubelet_of_claims()
    stage.claim("a", gpu=1)
    await kubelet.prepare("a")
    await stage.eventually(
        lambda: (
            [each["name"] for each in stage.slices()[0]["spec"]["devices"]]
            == [name_of(1), name_of(0)]
        ),
        "the used GPU first",
    )


async def test_a_restarted_plugin_goes_on_with_its_claims(stage: ClaimStage) -> None:
    """They count before anything is offered, and kubelet's repeated call changes nothing."""
    await stage.claims_offered()
    kubelet = await stage.kubelet_of_claims()
    stage.claim("a")
    before = await kubelet.prepare("a")
    await stage.stop_plugin()
    await stage.start_plugin()
    kubelet = await stage.kubelet_of_claims()
    assert stage.plugin is not None
    assert stage.plugin.state.in_use(GpuIndex(0))
    assert (await kubelet.prepare("a"))["a"] == before["a"]


async def test_the_label_switches_an_empty_node_both_ways(stage: ClaimStage) -> None:
    """Without a restart: the slice goes and kubelet gets devices, and back."""
    await stage.claims_offered()
    stage.label(**DEVICES)
    await stage.offered(30)
    await stage.no_claims_offered()
    stage.label(**CLAIMS)
    await stage.claims_offered()
    await stage.offered(0)
    await stage.eventually(lambda: stage.inventory().get("api") == "claims", "the inventory")


async def test_devices_in_use_keep_the_node_from_claims(tmp_path: Path) -> None:
    """An event on the node and the readiness give the reason; the last pod's end completes it."""
    stage = ClaimStage(tmp_path)
    async with stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3})
        await stage.admitted("p")
        assert stage.plugin is not None
        await stage.eventually(lambda: stage.plugin.state.granted(GpuIndex(0)), "a share")  # type: ignore[union-attr]
        stage.label(**CLAIMS)
        await stage.eventually(lambda: "GpuApiNotChanged" in stage.reasons("n1"), "an event")
        events = stage.cluster.stores["events"].objects.values()
        (message,) = [each["message"] for each in events if each["reason"] == "GpuApiNotChanged"]
        assert message == (
            "pods hold GPUs 0 through the device plugin: drain the node to offer claims"
        )
        assert not stage.slices()
        await stage.eventually(lambda: stage.inventory().get("serving") is True, "the inventory")
        stage.cluster.pods.delete("default", "p")
        await stage.claims_offered()


async def test_claims_in_use_keep_the_node_from_devices(stage: ClaimStage) -> None:
    """Known claims are still prepared again and unprepared; then the node changes."""
    await stage.claims_offered()
    kubelet = await stage.kubelet_of_claims()
    stage.claim("a")
    await kubelet.prepare("a")
    stage.label(**DEVICES)
    await stage.eventually(lambda: "GpuApiNotChanged" in stage.reasons("n1"), "an event")
    assert not stage.kubelet.manager.healthy.get("aliyun.com/gpu-mem")
    assert (await kubelet.prepare("a"))["a"].error == ""
    await kubelet.unprepare("a")
    await stage.offered(30)


async def test_a_claim_that_was_allocated_before_the_change_is_refused(stage: ClaimStage) -> None:
    """Its memory may be given away as devices by now; the error names the label."""
    await stage.claims_offered()
    kubelet = await stage.kubelet_of_claims()
    stage.label(**DEVICES)
    await stage.offered(30)
    stage.claim("late")
    answer = await kubelet.prepare("late")
    assert "gpushare/api" in answer["late"].error
    assert stage.files() == set()


async def test_an_unhealthy_gpu_takes_no_new_claim_and_keeps_those_that_run(
    stage: ClaimStage,
) -> None:
    """The device is tainted; a claim that was allocated just before waits until it is well."""
    await stage.claims_offered()
    kubelet = await stage.kubelet_of_claims()
    stage.claim("runs")
    stage.claim("new")
    await kubelet.prepare("runs")
    stage.driver.lost.add(t4(0).uuid)

    def tainted() -> list[str]:
        return [each["name"] for each in stage.slices()[0]["spec"]["devices"] if "taints" in each]

    await stage.eventually(lambda: tainted() == [name_of(0)], "the taint")
    assert (await kubelet.prepare("runs"))["runs"].error == ""
    assert "unhealthy" in (await kubelet.prepare("new"))["new"].error
    stage.driver.lost.clear()
    await stage.eventually(lambda: tainted() == [], "no taint")
    assert (await kubelet.prepare("new"))["new"].error == ""


async def test_auto_takes_devices_where_the_api_server_lacks_consumable_capacity(
    tmp_path: Path,
) -> None:
    """An API server that drops the field would publish GPUs that are allocated once."""
    stage = ClaimStage(tmp_path, api="auto")

    async def dropping(request: Any) -> Any:
        item = await request.json()
        for device in item["spec"]["devices"]:
            device.pop("allowMultipleAllocations")
        from aiohttp import web  # noqa: PLC0415

        return web.json_response(item, status=201)

    for _ in range(3):
        stage.cluster.fail_next("create", dropping)
    async with stage:
        await stage.offered(30)
        assert not stage.slices()


async def test_auto_takes_claims_where_the_api_server_has_them(tmp_path: Path) -> None:
    """A node with the label keeps its devices."""
    stage = ClaimStage(tmp_path, api="auto")
    async with stage:
        await stage.claims_offered()
        stage.label(**DEVICES, **{"gpushare/api": "devices"})
        await stage.offered(30)


async def test_a_label_without_the_back_end_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    """The chart gives the permissions that claims need only where they are enabled."""
    stage = ClaimStage(tmp_path, claims=False)
    stage.labels = CLAIMS
    async with stage:
        await stage.offered(30)
        await stage.eventually(lambda: "GpuApiNotChanged" in stage.reasons("n1"), "an event")
        assert not stage.registry.exists()


async def test_the_slice_is_published_again_after_kubelet_removed_it(stage: ClaimStage) -> None:
    """As a restart of kubelet does."""
    await stage.claims_offered()
    await stage.cluster.delete("resourceslices", SLICE)
    await stage.claims_offered()
    assert stage.slices()[0]["spec"]["pool"]["generation"] == 2
