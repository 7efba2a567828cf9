"""Two model servers on one GPU: the whole plugin, a fake kubelet that calls before each start."""

from pathlib import Path

import pytest
from fakecluster.objects import planned
from stage import Stage

pytestmark = pytest.mark.slow

TURN = {"gpushare/start-turn": "600"}


def set_status(stage: Stage, name: str, *, ready: bool) -> None:
    """Kubelet writes that the only container of a pod runs."""
    pod = stage.cluster.pods.objects["default", name]
    status = {"phase": "Running", "containerStatuses": [{"ready": ready, "state": {"running": {}}}]}
    stage.cluster.pods.put(pod | {"status": status})


async def test_the_second_server_starts_once_the_first_is_ready(tmp_path: Path) -> None:
    """Meanwhile its pod states whose turn it is; a pod without the annotation is not held up."""
    async with Stage(tmp_path, start_turns=True) as stage:
        await stage.offered(30)
        stage.create("first", {"gpu-mem": 3}, annotations=planned(0, 3) | TURN)
        await stage.admitted("first")
        assert stage.plugin is not None
        assert stage.plugin._gate is not None
        stage.plugin._gate._seconds = 0.1
        stage.create("second", {"gpu-mem": 3}, annotations=planned(0, 3) | TURN)
        stage.create("other", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.kubelet.wait_for(lambda: "second" in stage.kubelet.refused_starts)
        words = "waits for its turn: pod default/first is starting on the same GPU"
        assert words in stage.kubelet.refused_starts["second"]
        await stage.admitted("other")
        assert not stage.kubelet.admitted("second")
        set_status(stage, "first", ready=True)
        await stage.admitted("second")


async def test_a_turn_survives_the_plugin(tmp_path: Path) -> None:
    """Killed while a server starts, the plugin lets no other one start beside it afterwards."""
    async with Stage(tmp_path, start_turns=True) as stage:
        await stage.offered(30)
        stage.create("first", {"gpu-mem": 3}, annotations=planned(0, 3) | TURN)
        await stage.admitted("first")
        set_status(stage, "first", ready=False)
        await stage.stop_plugin()
        await stage.start_plugin()
        assert stage.plugin is not None
        assert stage.plugin._gate is not None
        stage.plugin._gate._seconds = 0.1
        await stage.offered(30)
        stage.create("second", {"gpu-mem": 3}, annotations=planned(0, 3) | TURN)
        await stage.kubelet.wait_for(lambda: "second" in stage.kubelet.refused_starts)
        assert "pod default/first is starting" in stage.kubelet.refused_starts["second"]
        set_status(stage, "first", ready=True)
        await stage.admitted("second")


async def test_without_turns_and_limits_kubelet_is_not_instructed_to_call(tmp_path: Path) -> None:
    """A stopped plugin then keeps no container from starting."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        assert not any(each.wants_start for each in stage.kubelet.manager.plugins.values())
