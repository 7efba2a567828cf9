"""The history of the mix outlives the extender, in a ConfigMap that the leader writes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from objects import node, pod
from running import Running
from structlog.testing import capture_logs

from gpucore.simulate.jobs import DAY
from gpucore.units import PodUid
from gpucore.workload.arrivals import HISTORY_KEY, Arrival
from gpucore.workload.history import FEWEST_PODS, SETTLED_SECONDS, PodHistory
from gpucore.workload.pod_mix import PodKind
from gpuextender import mixhistory
from gpuextender.mixhistory import RETRY_SECONDS, SAVE_SECONDS, MixHistory
from gpukube.errors import UnreachableError
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import Reply, ScriptedClient, failure, no_reply

NOW = 1_800_000_000.0
WHERE = "gpushare/gpushare-extender-mix"
PATH = "/api/v1/namespaces/gpushare/configmaps/gpushare-extender-mix"
EMPTY = b'{"metadata": {"name": "gpushare-extender-mix"}}'


def config_map(text: str) -> bytes:
    """The ConfigMap with a text."""
    return json.dumps({"metadata": {"name": "x"}, "data": {HISTORY_KEY: text}}).encode()


class Bench:
    """A history of some pods and what keeps it, with replies of the API server in order."""

    def __init__(self, *replies: Reply, where: str = WHERE, pods: int = 40) -> None:
        self.api, self.leading, self.history = ScriptedClient(*replies), True, PodHistory()
        self.kept = MixHistory(
            self.history,
            self.api,  # type: ignore[arg-type]
            where,
            self._leads,
            clock=lambda: NOW,
        )
        for number in range(pods):
            self.comes(number, NOW - 60.0 * number)

    async def _leads(self) -> bool:
        return self.leading

    def comes(self, number: int, created: float) -> None:
        """A pod of one kind."""
        arrival = Arrival("a", PodKind(mem=4), created=created)
        self.history.note(PodUid(f"{number}"), arrival)

    async def written(self) -> str:
        """The text of the last write, after another one."""
        await self.kept.save()
        request = self.api.requests[-1]
        assert (request.method, request.path) == ("PATCH", PATH)
        assert request.body.keys() == {"data"}
        text: str = request.body["data"][HISTORY_KEY]
        return text


async def test_what_one_process_writes_the_next_one_reads() -> None:
    """Together with the pods that exist they have the same pods."""
    first = Bench(EMPTY, b"{}")
    await first.kept.load()
    text = await first.written()
    second = Bench(config_map(text), pods=0)
    await second.kept.load()
    assert len(second.history) == len(first.history) - 2
    for number in (0, 1, 2, 39):
        second.comes(number, NOW - 60.0 * number)
    assert len(second.history) == len(first.history)


async def test_it_is_written_only_where_it_changed_and_by_the_leader() -> None:
    """A standby writes nothing, nor does a leader without new pods."""
    bench = Bench(EMPTY, b"{}", b"{}")
    await bench.kept.load()
    bench.leading = False
    await bench.kept.save()
    assert len(bench.api.requests) == 1
    bench.leading = True
    first = await bench.written()
    await bench.kept.save()
    assert len(bench.api.requests) == 2
    bench.comes(100, NOW + 10 * SETTLED_SECONDS)
    assert await bench.written() != first


async def test_a_restarted_leader_without_new_pods_writes_nothing() -> None:
    """What it read is what it would write."""
    first = Bench(EMPTY, b"{}")
    await first.kept.load()
    second = Bench(config_map(await first.written()))
    await second.kept.load()
    await second.kept.save()
    assert len(second.api.requests) == 1


@pytest.mark.parametrize("content", [config_map("{"), config_map('{"a": 1}'), b"[]"])
async def test_broken_content_is_ignored_with_a_warning_and_replaced(content: bytes) -> None:
    """The start goes on, and the next write has what this process counted."""
    bench = Bench(content, b"{}")
    with capture_logs() as logs:
        await bench.kept.load()
    assert [(each["log_level"], each["event"]) for each in logs] == [
        ("warning", "history of pods ignored")
    ]
    assert logs[0]["config_map"] == WHERE
    assert '"namespace":"a"' in await bench.written()


@pytest.mark.parametrize("status", [403, 404])
async def test_without_the_right_it_is_tried_again_and_no_warning_is_logged(status: int) -> None:
    """An API server that starts has read no roles yet; a ConfigMap may be created again."""
    refused = failure(status)
    bench = Bench(refused, EMPTY, refused, b"{}")
    with capture_logs() as logs:
        for methods in (["GET"], ["GET", "PATCH"], ["PATCH"], []):
            before = len(bench.api.requests)
            await bench.kept.load()
            await bench.kept.save()
            assert [each.method for each in bench.api.requests[before:]] == methods
    assert [each["log_level"] for each in logs] == ["info", "info"]


async def test_nothing_is_requested_where_it_is_not_configured() -> None:
    """As in the webhook's process."""
    bench = Bench(where="")
    await bench.kept.load()
    await bench.kept.save()
    assert bench.api.requests == []


async def test_nothing_is_written_before_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that fails or does not reply at the start costs no history."""
    monkeypatch.setattr(mixhistory, "LOAD_SECONDS", 0.01)
    bench = Bench(UnreachableError("down"), no_reply, failure(500), EMPTY, failure(500), b"{}")
    for tries in range(1, 4):
        await bench.kept.load()
        await bench.kept.save()
        assert len(bench.api.requests) == tries
    await bench.kept.load()
    await bench.kept.save()
    assert '"namespace":"a"' in await bench.written()
    assert [each.method for each in bench.api.requests] == ["GET"] * 4 + ["PATCH"] * 2


async def test_it_is_read_again_soon_and_written_every_few_minutes(clock: FakeClock) -> None:
    """By the job in the background."""
    bench = Bench(failure(500), EMPTY, b"{}", b"{}")
    began = asyncio.get_running_loop().time()
    job = asyncio.create_task(bench.kept.run())
    await asyncio.sleep(RETRY_SECONDS + SAVE_SECONDS + 1)
    bench.comes(100, NOW + 10 * SETTLED_SECONDS)
    await asyncio.sleep(SAVE_SECONDS)
    job.cancel()
    requests = [(each.method, each.at - began) for each in bench.api.requests]
    first = RETRY_SECONDS + SAVE_SECONDS
    assert requests == [
        ("GET", pytest.approx(0, abs=1)),
        ("GET", pytest.approx(RETRY_SECONDS, abs=1)),
        ("PATCH", pytest.approx(first, abs=1)),
        ("PATCH", pytest.approx(first + SAVE_SECONDS, abs=1)),
    ]


async def logged(*replies: Reply) -> list[Any]:
    """The lines of a load, a write and another load."""
    bench = Bench(*replies)
    with capture_logs() as logs:
        await bench.kept.load()
        await bench.kept.save()
        await bench.kept.load()
    return [{key: each[key] for key in each if key != "log_level"} for each in logs]


async def test_the_log_says_why_the_history_is_not_kept() -> None:
    """With the ConfigMap and the error, for every way in which that fails."""
    down, forbidden = UnreachableError("down"), failure(403, "no")

    def line(event: str, error: Exception) -> Any:
        return {"event": event, "config_map": WHERE, "error": str(error)}

    not_read, not_saved = "history of pods not read", "history of pods not saved"
    for error in (forbidden, down):
        assert await logged(error, error) == [line(not_read, error)] * 2
        assert await logged(EMPTY, error) == [line(not_saved, error)]
    read = {"event": "history of pods read", "config_map": WHERE, "pods": 38}
    first = Bench(EMPTY, b"{}")
    await first.kept.load()
    assert await logged(config_map(await first.written())) == [read]


@pytest.mark.parametrize("content", ["{", "[]"])
async def test_the_log_says_what_is_wrong_with_the_content(content: str) -> None:
    """The text that is no history, once."""
    [line] = await logged(config_map(content), b"{}")
    assert line["event"] == "history of pods ignored"
    assert line["error"].startswith("no history of pods: ")


async def test_a_history_of_a_time_that_has_not_come_is_ignored() -> None:
    """By the clock of the process that reads it."""
    first = Bench(EMPTY, b"{}", pods=0)
    await first.kept.load()
    for number in range(40):
        first.comes(number, NOW + 10 * DAY + 60.0 * number)
    with capture_logs() as logs:
        second = Bench(config_map(await first.written()), pods=0)
        await second.kept.load()
    assert [each["event"] for each in logs] == ["history of pods ignored"]
    assert len(second.history) == 0


# With an API server.


def made(name: str, mem: int, minute: int) -> dict[str, Any]:
    """A pod with a time of creation."""
    item = pod(name, mem)
    item["metadata"]["creationTimestamp"] = f"2026-11-26T12:{minute:02}:00Z"
    return item


async def mix_of(extender: Running) -> Any:
    """The mix in use."""
    await extender.service._learner.learn()
    document = json.loads((await extender.get("/api/v1/mix"))[1])
    return [(each["memUnits"], round(each["part"], 3)) for each in document["kinds"]]


@pytest.mark.slow
async def test_a_restarted_extender_uses_the_same_mix(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Although pods were deleted before it started; a pod that exists counts once."""
    await cluster.put("nodes", node("n", 16, 16, unit="GiB"))
    name = WHERE.partition("/")[2]
    await cluster.put("configmaps", {"metadata": {"name": name, "namespace": "gpushare"}})
    for number in range(FEWEST_PODS):
        await cluster.put("pods", made(f"p{number}", 8 if number % 4 else 2, number))
    await cluster.put("pods", made("new", 8, 50))
    async with Running(cluster, tmp_path, mix_history=WHERE) as extender:
        await extender.ready()
        before = await mix_of(extender)
        assert [mem for mem, _ in before] == [8, 2]
        await extender.service._history.save()
    for number in range(0, FEWEST_PODS, 2):
        await cluster.delete("pods", f"p{number}", "default")
    async with Running(cluster, tmp_path, mix_history=WHERE) as extender:
        await extender.ready()
        assert await mix_of(extender) == before
        assert len(extender.state.mix.history) == FEWEST_PODS + 1
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await extender.service._learner.learn()
        assert extender.state.mix.mix is None
