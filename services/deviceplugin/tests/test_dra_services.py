"""The DRA driver over real gRPC on unix sockets, as kubelet registers and calls it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakedra.claims import FakeClaims, cdi_claims, environment, holding, node
from fakedra.kubelet import DraKubelet

from gpucore.node.claims.prepare import ClaimPreparation, claim_node
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.endpoint import DraEndpoint
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.signals import Signal
from gpukube.errors import ForbiddenError, KubeError, ServerError, ThrottledError, UnreachableError

pytestmark = pytest.mark.slow


class DraStage:
    """A node's directories, the API server's claims, and a driver.

    Attributes:
        node: what the driver prepares claims with.
        changed: its GPUs changed.
    """

    def __init__(self, root: Path) -> None:
        self.registry, self.home, self.cdi = root / "registry", root / "gpu", root / "cdi"
        self.claims = FakeClaims()
        self.node = node()
        self.changed = Signal()
        self.driver = self.new_driver()

    def new_driver(self, instance: str = "") -> DraEndpoint:
        """A driver process; it has no state but that on disk."""
        files = ClaimFiles(self.home, self.cdi)
        return DraEndpoint(
            registry=self.registry,
            home=self.home,
            preparer=ClaimPreparer(self.claims, files, self._node, holder=holding()),
            node=self._node,
            changed=self.changed,
            instance=instance,
        )

    def _node(self) -> ClaimPreparation:
        return self.node

    async def restart(self) -> None:
        """The plugin ends and starts again."""
        await self.driver.stop()
        self.driver = self.new_driver()
        await self.driver.start()

    async def kubelet(self) -> DraKubelet:
        """A kubelet that has started and found the driver."""
        kubelet = DraKubelet(self.registry)
        await kubelet.register()
        return kubelet


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[DraStage]:
    """A driver that serves."""
    made = DraStage(tmp_path)
    await made.driver.start()
    yield made
    await made.driver.stop()


async def test_kubelet_finds_the_driver_and_its_services(stage: DraStage) -> None:
    """GetInfo names type, driver, endpoint and services; the status is taken over."""
    assert not stage.driver.registered.is_set()
    info = (await stage.kubelet()).drivers[CLAIM_DRIVER]
    assert (info.type, info.endpoint) == ("DRAPlugin", str(stage.home / "dra.sock"))
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert stage.driver.registered.is_set()


async def test_a_refused_registration_is_no_registration(stage: DraStage) -> None:
    """Kubelet may refuse after it has accepted, for example a second driver of the name."""
    kubelet = await stage.kubelet()
    await kubelet.register(accept=False)
    assert not stage.driver.registered.is_set()


async def test_a_claim_has_its_cdi_file_when_kubelet_is_answered(stage: DraStage) -> None:
    """The answer names request, pool, device, share and CDI device; the file has the limits."""
    stage.claims.add("u-1", 1)
    answer = (await (await stage.kubelet()).prepare("u-1"))["u-1"]
    (device,) = answer.devices
    assert answer.error == ""
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == ("n1", "gpu-1")
    assert device.share_id == "share-u-1-1"
    assert list(device.cdi_device_ids) == ["gpushare.io/claim=u-1-gpu"]
    env = environment(stage.cdi, "u-1")
    assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert env["GPUSHARE_MEM_LIMIT_MIB"] == "4096"


async def test_preparing_again_gives_the_same_answer(stage: DraStage) -> None:
    """Also to the next kubelet, the next plugin, and after a reboot that emptied /run."""
    stage.claims.add("u-1", 0, 1)
    first = (await (await stage.kubelet()).prepare("u-1"))["u-1"]
    spec = (stage.cdi / "gpushare.io-claim_u-1.json").read_bytes()
    assert (await (await stage.kubelet()).prepare("u-1"))["u-1"] == first
    await stage.restart()
    assert (await (await stage.kubelet()).prepare("u-1"))["u-1"] == first
    (stage.cdi / "gpushare.io-claim_u-1.json").unlink()
    await stage.restart()
    assert (stage.cdi / "gpushare.io-claim_u-1.json").read_bytes() == spec
    assert (await (await stage.kubelet()).prepare("u-1"))["u-1"] == first


async def test_a_prepared_claim_keeps_its_limits_when_the_policy_changes(stage: DraStage) -> None:
    """Its containers run with them, and one that starts again must get the same."""
    stage.claims.add("u-1", 0)
    kubelet = await stage.kubelet()
    await kubelet.prepare("u-1")
    before = environment(stage.cdi, "u-1")
    policy = msgspec.structs.replace(stage.node.policy, cgpu_disable=True)
    stage.node = claim_node(stage.node.inventory, policy, "n1")
    await kubelet.prepare("u-1")
    assert environment(stage.cdi, "u-1") == before


async def test_a_claim_that_was_allocated_anew_is_prepared_anew(stage: DraStage) -> None:
    """A pod deleted by force frees its claim before kubelet unprepares it."""
    stage.claims.add("u-1", 0)
    kubelet = await stage.kubelet()
    await kubelet.prepare("u-1")
    stage.claims.add("u-1", 1, gib=2)
    answer = (await kubelet.prepare("u-1"))["u-1"]
    assert [each.device_name for each in answer.devices] == ["gpu-1"]
    assert environment(stage.cdi, "u-1")["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


@pytest.mark.parametrize(
    "failure",
    [
        UnreachableError("GET: refused"),
        ServerError("GET", status=500, message="refused"),
        ThrottledError("GET", status=429, message="refused"),
    ],
    ids=["unreachable", "500", "429"],
)
async def test_without_the_api_server_the_checkpoint_answers(
    stage: DraStage, failure: KubeError
) -> None:
    """After a reboot pods start again though the control plane is away; new claims wait."""
    stage.claims.add("u-1", 0)
    kubelet = await stage.kubelet()
    first = (await kubelet.prepare("u-1"))["u-1"]
    stage.claims.failure = failure
    answers = await kubelet.prepare("u-1", "u-2")
    assert answers["u-1"] == first
    assert "refused" in answers["u-2"].error


async def test_an_api_server_that_refuses_is_believed(stage: DraStage) -> None:
    """A claim that is gone is not prepared again."""
    stage.claims.add("u-1", 0)
    kubelet = await stage.kubelet()
    await kubelet.prepare("u-1")
    stage.claims.objects.clear()
    assert "404" in (await kubelet.prepare("u-1"))["u-1"].error
    stage.claims.failure = ForbiddenError("GET", status=403, message="no")
    assert "403" in (await kubelet.prepare("u-1"))["u-1"].error


HOSTILE = {
    "configured": (
        "opaque parameters",
        {"config": [{"opaque": {"driver": CLAIM_DRIVER, "parameters": {}}}]},
    ),
    "elsewhere": ("no device of this driver", {"results": []}),
    "admin": (
        "devices with adminAccess do not count",
        {
            "results": [
                {
                    "request": "gpu",
                    "driver": CLAIM_DRIVER,
                    "pool": "n1",
                    "device": "gpu-0",
                    "adminAccess": True,
                }
            ]
        },
    ),
}


async def test_a_hostile_claim_harms_that_claim_alone(stage: DraStage) -> None:
    """Every claim of a call has an answer, and the well-formed ones are prepared."""
    stage.claims.add("good", 0)
    for uid, (_, more) in HOSTILE.items():
        stage.claims.add(uid, 0, **more)
    stage.claims.put("garbage", b"\xff{")
    huge = {
        "metadata": {"uid": "huge"},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "r" * 100_000,
                            "driver": CLAIM_DRIVER,
                            "pool": "n1",
                            "device": "gpu-0",
                        }
                    ]
                }
            }
        },
    }
    stage.claims.put("huge", json.dumps(huge).encode())
    stage.claims.put("other", json.dumps({**huge, "metadata": {"uid": "new"}}).encode())
    uids = ("good", *HOSTILE, "garbage", "huge", "other", "gone", "../../etc/x", "u" * 300)
    answers = await (await stage.kubelet()).prepare(*uids)
    assert set(answers) == set(uids)
    assert len(answers["good"].devices) == 1
    for uid, (sentence, _) in HOSTILE.items():
        assert sentence in answers[uid].error
    for uid in set(uids) - {"good"}:
        assert 0 < len(answers[uid].error) <= 1024, uid
        assert not answers[uid].devices
    assert cdi_claims(stage.cdi) == {"good"}


async def test_a_fault_of_the_program_harms_one_claim(
    stage: DraStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception is an error of its claim, not of the call."""
    stage.claims.add("u-1", 0)
    kubelet = await stage.kubelet()
    monkeypatch.setattr(stage, "node", None)
    assert "unexpected AttributeError" in (await kubelet.prepare("u-1"))["u-1"].error


async def test_unprepare_removes_everything_and_may_come_twice(stage: DraStage) -> None:
    """Claims that were never prepared, or have no valid name, are unprepared successfully."""
    stage.claims.add("u-1", 0)
    kubelet = await stage.kubelet()
    await kubelet.prepare("u-1")
    for _ in range(2):
        answers = await kubelet.unprepare("u-1", "never", "../x")
        assert {uid: each.error for uid, each in answers.items()} == dict.fromkeys(
            ("u-1", "never", "../x"), ""
        )
    assert cdi_claims(stage.cdi) == set()
    assert list((stage.home / "claims").iterdir()) == []


async def test_a_claim_that_cannot_be_removed_is_an_error(
    stage: DraStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet tries again until the files are gone."""

    def refused(_self: Path, *, missing_ok: bool = False) -> None:
        raise OSError(30, f"read-only {missing_ok}")

    kubelet = await stage.kubelet()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        answers = await kubelet.unprepare("u-1")
    assert "read-only" in answers["u-1"].error


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_health_is_reported_at_once_and_after_every_change(
    stage: DraStage, version: str
) -> None:
    """Kubelet shows it in the status of the pods that have the device."""
    channel, stream = (await stage.kubelet()).health(version)
    reports = aiter(stream)
    async with asyncio.timeout(60), channel:
        first = await anext(reports)
        ill = msgspec.structs.replace(stage.node.inventory.gpus[0], healthy=False)
        gpus = (ill, *stage.node.inventory.gpus[1:])
        inventory = msgspec.structs.replace(stage.node.inventory, gpus=gpus)
        stage.node = claim_node(inventory, stage.node.policy, "n1")
        stage.changed.fire()
        second = await anext(reports)
        stream.cancel()
    assert [(d.device.pool_name, d.device.device_name, d.health) for d in first.devices] == [
        ("n1", "gpu-0", 1),
        ("n1", "gpu-1", 1),
    ]
    assert [each.health for each in second.devices] == [2, 1]


async def test_two_plugins_serve_one_driver_during_a_rolling_update(stage: DraStage) -> None:
    """The new one keeps what the old one prepared, and the old one may end last or first."""
    stage.claims.add("u-1", 0)
    stage.claims.add("u-2", 1)
    old = await stage.kubelet()
    await old.prepare("u-1")
    second = stage.new_driver("pod-2")
    await second.start()
    await stage.driver.stop()
    new = await stage.kubelet()
    await new.prepare("u-2")
    assert cdi_claims(stage.cdi) == {"u-1", "u-2"}
    await new.unprepare("u-1", "u-2")
    assert cdi_claims(stage.cdi) == set()
    await second.stop()
    assert list(stage.registry.iterdir()) == []


async def test_a_burst_survives_an_upgrade_with_two_plugins(stage: DraStage) -> None:
    """Calls to the old and the new plugin run at once; no claim is lost or prepared twice."""
    uids = [f"u-{number}" for number in range(40)]
    for number, uid in enumerate(uids):
        stage.claims.add(uid, number % 2, gib=1)
    old = await stage.kubelet()
    before = [asyncio.create_task(old.prepare(uid)) for uid in uids[:20]]
    second = stage.new_driver("upgraded")
    await second.start()
    new = await stage.kubelet()
    assert new.drivers[CLAIM_DRIVER].endpoint != old.drivers[CLAIM_DRIVER].endpoint
    after = [asyncio.create_task(new.prepare(uid)) for uid in uids[20:]]
    answers = [await call for call in (*before, *after)]
    assert not any(each.error for answer in answers for each in answer.values())
    await stage.driver.stop()
    assert cdi_claims(stage.cdi) == set(uids)
    again = {uid: (await new.prepare(uid))[uid] for uid in uids}
    assert again == {uid: each for answer in answers for uid, each in answer.items()}
    released = await new.unprepare(*uids)
    assert not any(each.error for each in released.values())
    assert cdi_claims(stage.cdi) == set()
    await second.stop()


async def test_sockets_of_a_killed_plugin_are_removed(stage: DraStage) -> None:
    """Kubelet would try to register them for ever; those of a living plugin stay."""
    dead = stage.registry / f"{CLAIM_DRIVER}-pod-0-reg.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    second = stage.new_driver("pod-2")
    await second.start()
    assert {path.name for path in stage.registry.iterdir()} == {
        f"{CLAIM_DRIVER}-reg.sock",
        f"{CLAIM_DRIVER}-pod-2-reg.sock",
    }
    await second.stop()


async def test_a_burst_survives_restarts_of_kubelet_and_of_the_plugin(stage: DraStage) -> None:
    """Calls run at once and some are cut off; repeated calls prepare every claim exactly once."""
    uids = [f"u-{number}" for number in range(40)]
    for number, uid in enumerate(uids):
        stage.claims.add(uid, number % 2, gib=1)
    kubelet = await stage.kubelet()
    burst = [asyncio.create_task(kubelet.prepare(uid)) for uid in uids]
    await asyncio.wait(burst, return_when=asyncio.FIRST_COMPLETED)
    for call in burst[::2]:  # kubelet ends
        call.cancel()
    await stage.restart()
    await asyncio.gather(*burst, return_exceptions=True)
    kubelet = await stage.kubelet()
    answers = await kubelet.prepare(*uids)
    assert all(len(each.devices) == 1 for each in answers.values())
    assert cdi_claims(stage.cdi) == set(uids)
    await asyncio.gather(*(kubelet.unprepare(uid) for uid in uids))
    assert cdi_claims(stage.cdi) == set()


async def test_claims_deleted_while_the_plugin_was_away_are_unprepared(stage: DraStage) -> None:
    """Only those that do not exist: a failing API server, or a claim that is freed, is no proof."""
    names = ("gone", "renewed", "freed", "kept")
    for uid in names:
        stage.claims.add(uid, 0)
    await (await stage.kubelet()).prepare(*names)
    await stage.driver.stop()
    preparer = ClaimPreparer(
        stage.claims, ClaimFiles(stage.home, stage.cdi), node, holder=holding()
    )
    stage.claims.failure = UnreachableError("down")
    await preparer.remove_deleted()
    assert cdi_claims(stage.cdi) == set(names)
    stage.claims.failure = None
    stage.claims.remove("gone")
    stage.claims.put("renewed", b'{"metadata": {"uid": "another"}}')
    stage.claims.put("freed", b'{"metadata": {"uid": "freed"}, "status": {}}')
    await preparer.remove_deleted()
    assert cdi_claims(stage.cdi) == {"freed", "kept"}


async def test_the_driver_serves_until_it_is_cancelled(stage: DraStage) -> None:
    """It deregisters by removing its sockets, and leaves the files of prepared claims."""
    stage.claims.add("u-1", 0)
    stage.claims.add("gone", 0)
    await (await stage.kubelet()).prepare("u-1", "gone")
    stage.claims.remove("gone")
    await stage.driver.stop()
    running = asyncio.create_task(stage.driver.run())
    async with asyncio.timeout(60):
        while cdi_claims(stage.cdi) != {"u-1"}:  # noqa: ASYNC110 - files send no event
            await asyncio.sleep(0.01)
        assert (await (await stage.kubelet()).prepare("u-1"))["u-1"].error == ""
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert list(stage.registry.iterdir()) == []
    assert cdi_claims(stage.cdi) == {"u-1"}


async def test_a_start_that_fails_leaves_nothing_served(tmp_path: Path) -> None:
    """The path of a socket can be too long for Linux: the driver is not half registered."""
    stage = DraStage(tmp_path)
    driver = stage.new_driver("x")
    driver.socket = stage.home / f"dra-{'x' * 200}.sock"
    with pytest.raises((OSError, RuntimeError)):
        await driver.start()
    assert list(stage.registry.iterdir()) == []
    assert [path.name for path in stage.home.glob("*.sock")] == []


async def test_the_end_does_not_wait_for_the_health_stream(
    stage: DraStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet keeps it open for ever; the driver ends it, and kubelet sees a regular end."""
    monkeypatch.setattr("gpudeviceplugin.dra.endpoint.STOP_SECONDS", 600.0)
    channel, stream = (await stage.kubelet()).health("v1")
    async with asyncio.timeout(60), channel:
        assert len([report async for report in _ended_after_one(stage, stream)]) == 1


async def _ended_after_one(stage: DraStage, stream: Any) -> AsyncIterator[Any]:
    """All reports; the driver is stopped after the first one."""
    stopping = None
    async for report in stream:
        yield report
        stopping = stopping or asyncio.create_task(stage.driver.stop())
    assert stopping is not None
    await stopping
