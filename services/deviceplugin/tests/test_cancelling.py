"""A plugin that is instructed to end at the worst moment: it ends, and leaves nothing behind."""

import asyncio
import gc
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from fakekubelet.kubelet import FakeKubelet

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy
from gpudeviceplugin.cancelling import spawn
from gpudeviceplugin.kubelet.endpoint import Endpoint, RegistrationError
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.state import NodeState
from gpukube.testing.apiserver import FakeApiServer

SECONDS = 60.0


def running(word: str) -> list[str]:
    """Processes with a word in their command line; one that was not reaped has none."""
    lines = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines[file.parent.name] = file.read_bytes()
        except OSError:  # it has ended meanwhile
            continue
    return [pid for pid, line in lines.items() if word.encode() in line]


async def test_a_start_that_is_cancelled_at_any_step_leaves_no_process(tmp_path: Path) -> None:
    """Step by step, until the program is there before the cancellation: none waits for ever."""
    file = tmp_path / "nothing"
    file.touch()
    steps = 0
    while True:
        starting = asyncio.create_task(spawn("tail", "-f", str(file), stdin=PIPE, stdout=PIPE))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting}, timeout=SECONDS)
        assert starting.done(), f"cancelled after {steps} steps"
        if not starting.cancelled():
            break
        assert running(str(file)) == [], f"cancelled after {steps} steps"
        steps += 1
    assert steps > 3
    starting.result().kill()
    await starting.result().communicate()


async def test_a_node_without_a_free_process_id_starts_no_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before Python 3.12 a thread waits for each program, and fails to start with another error."""

    async def start(*_: str, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    with pytest.raises(OSError, match="can't start new thread"):
        await spawn("true")


class DeafKubelet(FakeKubelet):
    """Never answers a registration."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, FakeApiServer())
        self.requested = asyncio.Event()

    async def Register(  # noqa: N802 - the protocol's name
        self, request: api.RegisterRequest, context: Any
    ) -> api.Empty:
        """Takes it, and that is all."""
        self.requested.set()
        await asyncio.Event().wait()
        return api.Empty()


def endpoint(directory: Path) -> Endpoint:
    servicer = Servicer(
        NodeState(GrantPolicy()), Resource.MEM, patience_seconds=0, numa_hints=False
    )
    return Endpoint(Resource.MEM, "aliyun.com/gpu-mem", servicer, directory)


async def test_a_registration_that_fails_leaves_nothing_served(tmp_path: Path) -> None:
    """Without kubelet the socket goes again: it is tried anew by an endpoint of its own."""
    refused = endpoint(tmp_path)
    with pytest.raises(RegistrationError):
        await refused.start()
    assert not refused.socket.exists()


async def test_a_registration_that_is_cancelled_leaves_nothing_served(tmp_path: Path) -> None:
    """The plugin ends while kubelet takes its time."""
    async with DeafKubelet(tmp_path) as kubelet:
        waiting = endpoint(kubelet.directory)
        starting = asyncio.create_task(waiting.start())
        async with asyncio.timeout(SECONDS):
            await kubelet.requested.wait()
            assert waiting.socket.exists()
            starting.cancel()
            await asyncio.wait({starting})
        assert starting.cancelled()
        assert not waiting.socket.exists()


@pytest.mark.slow
async def test_a_registration_that_is_cancelled_at_any_step_leaves_nothing_served(
    tmp_path: Path,
) -> None:
    """Step by step, until all is served before the cancellation: no part of it fails unseen."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    steps = 0
    async with FakeKubelet(tmp_path, FakeApiServer()) as kubelet:
        while True:
            served = endpoint(kubelet.directory)
            starting = asyncio.create_task(served.start())
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting}, timeout=SECONDS)
            assert starting.done(), f"cancelled after {steps} steps"
            gc.collect()
            assert faults == [], f"cancelled after {steps} steps"
            if not starting.cancelled():
                break
            assert not served.socket.exists(), f"cancelled after {steps} steps"
            steps += 1
        starting.result()
        await served.stop()
    assert steps > 3


async def test_a_stop_that_is_cancelled_is_waited_for_by_the_next(tmp_path: Path) -> None:
    """After a cancelled stop, a second stop returns once no call is served any more."""
    async with FakeKubelet(tmp_path, FakeApiServer()) as kubelet:
        served = endpoint(kubelet.directory)
        await served.start()
        first = asyncio.create_task(served.stop())
        await asyncio.sleep(0)
        first.cancel()
        await served.stop()
        assert not served.socket.exists()
