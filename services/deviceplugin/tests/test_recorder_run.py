"""The recorder as a part of the plugin: its pace, its file, its replies, and what it costs."""

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from stage import Stage

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.attribution import Attribution
from gpucore.sizing.history_documents import MOST_HISTORIES, decode_histories
from gpucore.sizing.usage_documents import decode_usage
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import GIB, GpuIndex, GpuUuid, NodeName, PodUid
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.gpus.devices import Usage
from gpudeviceplugin.node.current_use import CurrentUse
from gpudeviceplugin.node.history_file import NAME, HistoryFile
from gpudeviceplugin.node.pod_starts import PodControllers
from gpudeviceplugin.node.recorder import SAVE_SECONDS, UsageRecorder
from gpudeviceplugin.state import NodeState
from gpudeviceplugin.web import Web
from gpukube.testing.waiting import until

pytestmark = pytest.mark.slow

PODS = 100
GPUS = 8
UNITS = 140
INTERVAL = 15.0
ROUNDS = 60


def a_history() -> UsageHistory:
    """One that was saved before."""
    found = UsageHistory(WorkloadKey("team", "Deployment", "web", "main"))
    found.record(1.7e9, 2**30)
    return found


async def at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    """In place of a thread, whose time the fake clock does not know."""
    return call(*arguments)


def full_node(file: HistoryFile | None = None) -> tuple[NodeState, CurrentUse, UsageRecorder]:
    """A node of eight GPUs with 100 pods, every one a workload of its own."""
    state = NodeState(GrantPolicy())
    gpus = tuple(
        Gpu(GpuIndex(i), GpuUuid(f"GPU-00000000-0000-0000-0000-{i:012}"), UNITS)
        for i in range(GPUS)
    )
    state.equip(Inventory(gpus=gpus, driver="1", unit=GIB))
    boxes = (Container("main", {"aliyun.com/gpu-mem": "10"}),)
    pods = [
        Pod(
            PodUid(f"uid-{n}"),
            "team",
            f"pod-{n}",
            NodeName("n1"),
            phase="Running",
            containers=boxes,
        )
        for n in range(PODS)
    ]
    state.on_replace(pods)
    table = state.matcher.tables[Resource.MEM]
    held = []
    for number, pod in enumerate(pods):
        gpu, first = GpuIndex(number % GPUS), 10 * (number // GPUS)
        rows = {"main": {Resource.MEM: table.ids[gpu][first : first + 10]}}
        held.append(Held("team", pod.name, rows))
    state.sync_from_kubelet(held, requested_at=state.settled_turn())
    use = CurrentUse(state, "n1")
    recorder = UsageRecorder(
        state, use, PodControllers(), node="n1", file=file, interval_seconds=INTERVAL
    )
    return state, use, recorder


def used(state: NodeState, use: CurrentUse, turn: int) -> None:
    """New figures of every pod."""
    for gpu in state.inventory.gpus:
        mine = {
            PodUid(f"uid-{n}"): (n * 97 + turn * 131) % 10240 << 20
            for n in range(PODS)
            if n % GPUS == gpu.index
        }
        use.measured(gpu, Usage(1 << 37, sum(mine.values()), ()), Attribution(mine, 0))


async def test_it_samples_at_its_interval_and_saves_every_five_minutes(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved before is there from the start on, and the end saves once more."""
    file = HistoryFile(tmp_path / "usage", "n1")
    file.save([a_history()])
    saves, began = list[float](), clock.seconds
    _, _, recorder = full_node(file)
    recorder._monotonic = lambda: clock.seconds
    recorder._saved = began
    monkeypatch.setattr(file, "save", lambda _histories: saves.append(clock.seconds - began))
    monkeypatch.setattr("gpudeviceplugin.node.recorder.asyncio.to_thread", at_once)
    samples = list[float]()
    monkeypatch.setattr(recorder, "sample", lambda: samples.append(clock.seconds - began))
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(SAVE_SECONDS + INTERVAL + 1)
    running.cancel()
    await asyncio.wait({running})
    assert samples[:3] == [INTERVAL, 2 * INTERVAL, 3 * INTERVAL]
    assert saves[:1] == [SAVE_SECONDS]
    assert len(saves) == 2
    assert recorder.histories.get(a_history().key) == a_history()


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
async def test_a_clock_that_jumps_changes_nothing_about_when_it_saves(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The time of day is set two hours back or ahead; the file is saved every five minutes."""
    file = HistoryFile(tmp_path / "usage", "n1")
    saves, began = list[float](), clock.seconds
    _, _, recorder = full_node(file)
    recorder._monotonic = lambda: clock.seconds
    recorder._saved = began
    recorder._clock = lambda: clock.seconds + jump
    monkeypatch.setattr(file, "save", lambda _histories: saves.append(clock.seconds - began))
    monkeypatch.setattr("gpudeviceplugin.node.recorder.asyncio.to_thread", at_once)
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(SAVE_SECONDS + INTERVAL + 1)
    running.cancel()
    await asyncio.wait({running})
    assert saves[:1] == [SAVE_SECONDS]


async def test_the_plugin_serves_and_keeps_histories(tmp_path: Path) -> None:
    """Beside its metrics; the next process has them again."""
    home = tmp_path / "usage"
    HistoryFile(home, "n1").save([a_history()])
    async with Stage(tmp_path, record_dir=home, record_seconds=0.05) as stage:
        assert stage.plugin is not None
        web, recorder = stage.plugin._web, stage.plugin._recorder
        assert recorder is not None
        await stage.eventually(lambda: web._listener and len(recorder.histories))
        assert web._listener is not None
        port = web._listener.sockets[0].getsockname()[1]
        async with httpx2.AsyncClient() as client:
            history = await client.get(f"http://127.0.0.1:{port}/usage-history")
            usage = await client.get(f"http://127.0.0.1:{port}/usage")
    assert history.headers["content-type"].startswith("application/json")
    assert decode_histories(history.content) == [a_history()]
    assert decode_usage(usage.content).node == "n1"
    assert decode_histories((home / NAME).read_bytes()) == [a_history()]


async def test_until_the_saved_histories_are_loaded_there_is_no_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader would take an empty one for a node on which nothing was measured."""
    file = HistoryFile(tmp_path / "usage", "n1")
    file.save([a_history()])
    _, _, recorder = full_node(file)
    loading, go_on = asyncio.Event(), asyncio.Event()

    async def held(call: Callable[..., Any]) -> Any:
        loading.set()
        await go_on.wait()
        return call()

    monkeypatch.setattr("gpudeviceplugin.node.recorder.asyncio.to_thread", held)
    web = Web(lambda: "", documents={"/usage-history": recorder.document})
    port = await web.start("127.0.0.1", 0)
    address = f"http://127.0.0.1:{port}/usage-history"
    running = asyncio.create_task(recorder.run())
    await loading.wait()
    async with httpx2.AsyncClient() as client:
        early = await client.get(address)
        go_on.set()
        await until("the histories are loaded", lambda: len(recorder.histories))
        late = await client.get(address)
    running.cancel()
    await asyncio.wait({running})
    await web.stop()
    assert (early.status_code, late.status_code) == (503, 200)
    assert "not known yet" in early.text
    assert decode_histories(late.content) == [a_history()]


async def test_a_status_with_a_failure_reaches_the_history(tmp_path: Path) -> None:
    """The watch hands every event of a pod to the recorder."""
    end = {"exitCode": 1, "message": "CUDA out of memory", "finishedAt": "2026-01-01T00:00:00Z"}
    box = {"name": "main", "lastState": {"terminated": end}}
    line = json.dumps({"object": {"status": {"containerStatuses": [box]}}}).encode()
    async with Stage(tmp_path) as stage:
        assert stage.plugin is not None
        recorder = stage.plugin._recorder
        assert recorder is not None
        found = UsageHistory(WorkloadKey("team", "Pod", "web", "main"))
        found.record(1.7e9, 2**30, requested_bytes=2**31)
        recorder.histories.put([found])
        box_of = (Container("main", {"aliyun.com/gpu-mem": "2"}),)
        pod = Pod(PodUid("u"), "team", "web", NodeName("n1"), containers=box_of)
        stage.plugin.state.on_status(pod, line)
    assert (found.out_of_memory, found.ran_out.limit_bytes) == (1, 2**31)


async def test_without_an_interval_nothing_is_recorded(tmp_path: Path) -> None:
    """Memory in use is served all the same."""
    async with Stage(tmp_path, record_seconds=0) as stage:
        assert stage.plugin is not None
        assert stage.plugin._recorder is None
        await stage.informed()
        assert stage.plugin._controllers._known == {}


async def test_a_document_is_rendered_once_for_all_who_ask() -> None:
    """As the metrics are: a client in a loop costs one rendering a second."""
    rendered = 0

    def render() -> bytes:
        nonlocal rendered
        rendered += 1
        return json.dumps(rendered).encode()

    web = Web(lambda: "", documents={"/usage": render})
    port = await web.start("127.0.0.1", 0)
    async with httpx2.AsyncClient() as client:
        address = f"http://127.0.0.1:{port}/usage"
        replies = await asyncio.gather(*(client.get(address) for _ in range(5)))
    await web.stop()
    assert all(reply.status_code == 200 for reply in replies)
    assert rendered <= 2


@pytest.mark.budget
def test_recording_100_pods_takes_less_than_one_percent_of_a_core() -> None:
    """Samples and documents; seconds of this thread's processor."""
    state, use, recorder = full_node()
    began = time.thread_time()
    for turn in range(ROUNDS):
        used(state, use, turn)
        recorder.sample()
    recorder.document()
    took = (time.thread_time() - began) / ROUNDS
    print(f"{1000 * took:.2f} ms each {INTERVAL} s: {100 * took / INTERVAL:.3f} % of a core")
    assert len(recorder.histories) == PODS
    assert took < 0.01 * INTERVAL


def test_histories_of_100_pods_take_less_than_5_mib() -> None:
    """With samples in most buckets that such pods can reach."""
    state, use, recorder = full_node()
    gc.collect()
    tracemalloc.start()
    for turn in range(2 * ROUNDS):
        used(state, use, turn)
        recorder.sample()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"{grown / 2**20:.2f} MiB for {PODS} pods, {len(recorder.document())} bytes of JSON")
    assert grown < 5 * 2**20


def test_the_most_histories_are_read_again(tmp_path: Path) -> None:
    """A full list is within the bounds of its reader."""
    file = HistoryFile(tmp_path / "usage", "n1")
    many = [UsageHistory(WorkloadKey("n", "Job", f"{n:04}", "c")) for n in range(MOST_HISTORIES)]
    for each in many:
        each.record(1.7e9, 2**30)
    file.save(many)
    assert file.load() == many
