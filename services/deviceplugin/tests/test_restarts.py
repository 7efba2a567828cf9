"""Restarts of kubelet and of the plugin: stable ids, undisturbed pods, nothing lost."""

import asyncio
from pathlib import Path

import pytest
from fakecluster.objects import planned
from stage import Stage

from gpukube.testing.waiting import WAIT_SECONDS

pytestmark = pytest.mark.slow


async def test_a_restarted_plugin_takes_no_running_pod_for_a_waiting_one(tmp_path: Path) -> None:
    """After an upgrade a pod equal to a running one gets its own planned GPU."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("old", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("old")
        before = stage.kubelet.devices("old")
        await stage.stop_plugin()
        await stage.offered(0)
        await stage.start_plugin()
        await stage.informed()
        await stage.offered(30)
        stage.create("new", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("new")
        assert stage.gpus_of("new") == {1}
        assert stage.kubelet.devices("old") == before


async def test_pods_that_came_while_kubelet_was_down_get_their_gpus(tmp_path: Path) -> None:
    """A new kubelet admits in order of creation, not of arrival, and the plans still hold."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        await stage.kubelet.stop()
        stage.create("late", {"gpu-mem": 3}, annotations=planned(0, 3), created=9000)
        stage.create("early", {"gpu-mem": 3}, annotations=planned(1, 3), created=10)
        assert stage.plugin is not None
        state = stage.plugin.state
        await stage.eventually(lambda: len(state.pods) == 2)
        await stage.kubelet.start(after_offered="aliyun.com/gpu-mem")
        await stage.admitted("early")
        await stage.admitted("late")
        assert (stage.gpus_of("early"), stage.gpus_of("late")) == ({1}, {0})


async def test_a_kubelet_that_has_lost_its_stream_gets_the_devices_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drops the plugin at an error of the stream, and never calls it again by itself."""
    monkeypatch.setattr("gpudeviceplugin.kubelet.endpoint.UNWATCHED_SECONDS", 0.2)
    monkeypatch.setattr("gpudeviceplugin.kubelet.registration.LOOK_SECONDS", 0.1)
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        await stage.kubelet.manager.plugins["aliyun.com/gpu-mem"].channel.close()
        await stage.offered(0)
        await stage.offered(30)


async def test_a_kubelet_that_starts_lists_no_pods_and_they_keep_their_ids_all_the_same(
    tmp_path: Path,
) -> None:
    """The plugin reads that list before kubelet's other socket shows the restart."""
    async with Stage(tmp_path, reconcile_seconds=30) as stage:
        await stage.offered(30)
        stage.create("old", {"gpu-mem": 11}, annotations=planned(0, 11))
        await stage.admitted("old")
        await stage.eventually(
            lambda: stage.annotations("old")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )
        assert stage.plugin is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while not await stage.plugin._reconciler.look():  # noqa: ASYNC110 - another watch
                await asyncio.sleep(0.01)
        await stage.kubelet.stop()
        await stage.kubelet.start(
            after_offered="aliyun.com/gpu-mem", listing=stage.plugin._reconciler.look
        )
        stage.create("new", {"gpu-mem": 4}, annotations=planned(0, 4))
        await stage.admitted("new")
        assert stage.gpus_of("new") == {0}


async def test_a_removed_plugin_socket_is_made_again(tmp_path: Path) -> None:
    """The plugin registers again after its socket was removed from kubelet's directory."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        next(stage.kubelet.directory.glob("gpushare-gpu-mem-*.sock")).unlink()
        await stage.kubelet.wait_for(
            lambda: stage.kubelet.registrations.count("aliyun.com/gpu-mem") == 2
        )
        await stage.offered(30)


@pytest.mark.parametrize("late", [False, True], ids=["", "kubelet misses the end"])
async def test_a_hangup_registers_anew(tmp_path: Path, *, late: bool) -> None:
    """SIGHUP enumerates the GPUs and registers all resources again.

    Kubelet of 1.37 that has not seen the end of a stream takes no plugin at its socket.
    """
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.kubelet.late = late
        assert stage.plugin is not None
        stage.plugin.reread()
        await stage.kubelet.wait_for(
            lambda: stage.kubelet.registrations.count("aliyun.com/gpu-mem") == 2
        )


async def test_a_plugin_that_outlives_another_one_offers_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod of the other one was deleted by force, or belongs to a release that is removed.

    Kubelet before 1.37 takes the end of that plugin for the end of this one.
    """
    monkeypatch.setattr("gpudeviceplugin.kubelet.endpoint.OUTLIVED_SECONDS", 0.1)
    monkeypatch.setattr("gpudeviceplugin.kubelet.registration.LOOK_SECONDS", 0.1)
    async with Stage(tmp_path) as stage:
        stage.kubelet.by_resource = True
        await stage.offered(30)
        other = Stage.__new__(Stage)
        other.plugin, other._running = stage.plugin, stage._running
        await stage.start_plugin()
        await stage.kubelet.wait_for(
            lambda: stage.kubelet.registrations.count("aliyun.com/gpu-mem") == 2
        )
        await stage.offered(30)
        await other.stop_plugin()
        await stage.offered(0)
        await stage.offered(30)


async def test_a_kubelet_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """The plugin is up before kubelet: it registers as soon as there is a socket."""
    stage = Stage(tmp_path)
    stage.kubelet_starts_late = True
    async with stage:
        assert stage.plugin is not None
        state = stage.plugin.state
        await stage.eventually(lambda: state.inventory.gpus)
        await stage.kubelet.start()
        await stage.offered(30)


async def test_a_broken_watch_goes_on_and_an_expired_one_lists_again(tmp_path: Path) -> None:
    """Pods deleted while the watch was away are noticed, and new ones are placed as planned."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("gone", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("gone")
        stage.cluster.pods.delete("default", "gone")
        stage.cluster.pods.compact()
        stage.cluster.drop_watches()
        assert stage.plugin is not None
        pods = stage.plugin.state.pods
        await stage.eventually(lambda: not pods)
        stage.create("new", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("new")
        assert stage.gpus_of("new") == {1}


@pytest.mark.parametrize("plugin_restarts", [False, True])
async def test_a_lost_checkpoint_gives_no_device_out_twice(
    tmp_path: Path, plugin_restarts: bool
) -> None:
    """Kubelet calls all devices free; a pod that runs keeps its units of GPU 0 all the same."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("old", {"gpu-mem": 10}, annotations=planned(0, 10))
        await stage.admitted("old")
        await stage.eventually(
            lambda: stage.annotations("old")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )
        before = stage.kubelet.devices("old")["c0"]
        if plugin_restarts:
            await stage.stop_plugin()
        await stage.kubelet.restart(lose_checkpoint=True)
        if plugin_restarts:
            await stage.start_plugin()
            await stage.informed()
        await stage.offered(30)
        assert stage.kubelet.devices("old") == {}
        stage.create("new", {"gpu-mem": 6}, annotations=planned(0, 6))
        stage.create("small", {"gpu-mem": 5}, annotations=planned(0, 5))
        await stage.admitted("new")
        await stage.admitted("small")
        assert (stage.gpus_of("new"), stage.gpus_of("small")) == ({1}, {0})
        if not plugin_restarts:
            assert not before & stage.kubelet.devices("small")["c0"]
        stage.create("large", {"gpu-mem": 15}, annotations=planned(0, 15))
        assert "free" in await stage.rejected("large")
        stage.cluster.pods.delete("default", "old")
        stage.create("after", {"gpu-mem": 10}, annotations=planned(0, 10))
        await stage.admitted("after")
        assert stage.gpus_of("after") == {0}
