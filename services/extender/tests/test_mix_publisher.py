"""The process that decides publishes the mix by which it does, and writes no more than it must."""

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from objects import node, pod
from running import Running, until
from structlog.testing import capture_logs

from gpucore.workload.arrivals import HISTORY_KEY as HISTORY
from gpucore.workload.history import FEWEST_PODS
from gpucore.workload.mix_in_use import KEY, MOST_BYTES, decode_mix, encode_mix
from gpucore.workload.pod_mix import PodKind, PodMix
from gpuextender import mixpublisher
from gpuextender.mixpublisher import LOOK_SECONDS, READ_SECONDS, WRITE_SECONDS, MixPublisher
from gpuextender.nomination.rounds import Leadership
from gpukube.errors import UnreachableError
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import Reply, ScriptedClient, failure

NOW = 1_800_000_000.0
WHERE = "gpushare/gpushare-extender-mix"
NAME = "gpushare-extender-mix"
PATH = f"/api/v1/namespaces/gpushare/configmaps/{NAME}"
EMPTY = b'{"metadata": {"name": "x"}}'
OK = b"{}"
Object = dict[str, Any]


def mix_of(units: int) -> PodMix:
    """Pods of this many units."""
    return PodMix({PodKind(mem=units): 20.0})


def published(mix: PodMix | None) -> bytes:
    """The ConfigMap with a mix of an hour ago."""
    data = {KEY: encode_mix(mix, NOW - 3600)}
    return json.dumps({"metadata": {"name": "x"}, "data": data}).encode()


class Bench:
    """A publisher, with replies of the API server in order."""

    def __init__(self, *replies: Reply, where: str = WHERE) -> None:
        self.api = ScriptedClient(*replies)
        self.term: int | None = 0
        self.publisher = MixPublisher(
            self.api,  # type: ignore[arg-type]
            where,
            self._term,
            clock=lambda: NOW,
        )

    async def _term(self) -> int | None:
        return self.term

    async def after(self, mix: PodMix | None) -> list[str]:
        """The methods of the requests that this mix leads to, all to the one ConfigMap."""
        before = len(self.api.requests)
        self.publisher.use(mix)
        await self.publisher.publish()
        sent = self.api.requests[before:]
        assert all(each.path == PATH for each in sent)
        return [each.method for each in sent]

    def written(self) -> PodMix | None:
        """The mix of the last write, which touches nothing else."""
        request = self.api.requests[-1]
        assert (request.method, request.path) == ("PATCH", PATH)
        assert request.body.keys() == {"data"}
        assert request.body["data"].keys() == {KEY}
        found = decode_mix(request.body["data"][KEY])
        assert found.time == NOW
        return found.mix()


async def test_the_mix_in_use_is_written_once() -> None:
    """Not again while it stays; each other one, and the guess, is."""
    bench, first = Bench(EMPTY, *[OK] * 3), mix_of(4)
    assert await bench.after(None) == ["GET", "PATCH"]
    assert bench.written() is None
    assert await bench.after(first) == ["PATCH"]
    found = bench.written()
    assert found is not None
    assert found.kinds == first.kinds
    assert await bench.after(first) == []
    assert await bench.after(mix_of(8)) == ["PATCH"]


async def test_a_process_that_does_not_decide_writes_nothing() -> None:
    """Nor does it read; once it decides it replaces what another one published."""
    bench, mine = Bench(published(mix_of(8)), OK), mix_of(4)
    bench.term = None
    assert await bench.after(mine) == []
    bench.term = 7
    assert await bench.after(mine) == ["GET", "PATCH"]
    found = bench.written()
    assert found is not None
    assert found.kinds == mine.kinds


async def test_what_an_earlier_process_left_is_written_anew() -> None:
    """Even if it is the same mix: its time is before the start of this process."""
    bench, mine = Bench(published(mix_of(4)), OK), mix_of(4)
    assert await bench.after(mine) == ["GET", "PATCH"]
    bench.written()


@pytest.mark.parametrize("between", [None, 8])
async def test_after_another_term_only_what_another_one_wrote_is_replaced(
    between: int | None,
) -> None:
    """A scheduler that was restarted beside the same extender costs a read and no write."""
    bench, mine = Bench(EMPTY, OK), mix_of(4)
    await bench.after(mine)
    text = bench.api.requests[-1].body["data"][KEY]
    own = json.dumps({"metadata": {"name": "x"}, "data": {KEY: text}}).encode()
    bench.api.replies.extend([own] if between is None else [published(mix_of(8)), OK])
    bench.term = 1
    assert await bench.after(mine) == (["GET"] if between is None else ["GET", "PATCH"])
    assert await bench.after(mine) == []


async def test_a_process_that_decides_again_reads_what_is_published() -> None:
    """Without a Lease all terms have one number."""
    bench, mine = Bench(EMPTY, OK, published(mix_of(8)), OK), mix_of(4)
    await bench.after(mine)
    bench.term = None
    assert await bench.after(mine) == []
    bench.term = 0
    assert await bench.after(mine) == ["GET", "PATCH"]


async def test_a_failed_write_is_tried_again() -> None:
    """Whether the read, the write or the content of the ConfigMap is at fault."""
    down = UnreachableError("down")
    bench, mine = Bench(down, EMPTY, down, EMPTY, OK), mix_of(4)
    with capture_logs() as logs:
        assert await bench.after(mine) == ["GET"]
        assert await bench.after(mine) == ["GET", "PATCH"]
        assert await bench.after(mine) == ["GET", "PATCH"]
    assert await bench.after(mine) == []
    line = {"event": "mix not published", "config_map": WHERE, "error": "down"}
    assert logs == [{**line, "log_level": "info"}] * 2
    broken = Bench(b"[]", EMPTY, OK)
    await broken.after(mine)
    assert await broken.after(mine) == ["GET", "PATCH"]


@pytest.mark.parametrize("status", [403, 404])
async def test_a_mix_that_may_not_be_published_yet_is_published_later(status: int) -> None:
    """An API server that starts has read no roles yet; a ConfigMap may be created again."""
    refused, mine = failure(status, "no"), mix_of(4)
    bench = Bench(refused, EMPTY, refused, EMPTY, OK)
    with capture_logs() as logs:
        for methods in (["GET"], ["GET", "PATCH"], ["GET", "PATCH"], []):
            assert await bench.after(mine) == methods
    found = bench.written()
    assert found is not None
    assert found.kinds == mine.kinds
    line = {"event": "mix not published", "config_map": WHERE, "log_level": "info"}
    assert logs == [{**line, "error": str(refused)}] * 2


async def test_a_restored_api_server_gets_the_mix_again(clock: FakeClock) -> None:
    """Its backup has an older one, or none, while the mix in use and the leader stay."""
    bench, mine = Bench(EMPTY, OK, published(mix_of(8)), OK), mix_of(4)
    assert await bench.after(mine) == ["GET", "PATCH"]
    await asyncio.sleep(READ_SECONDS - 1)
    assert await bench.after(mine) == []
    await asyncio.sleep(1)
    assert await bench.after(mine) == ["GET", "PATCH"]
    found = bench.written()
    assert found is not None
    assert found.kinds == mine.kinds
    assert await bench.after(mine) == []


async def test_nothing_is_requested_where_it_is_not_configured() -> None:
    """As in the webhook's process."""
    assert await Bench(where="").after(mix_of(4)) == []


async def test_a_mix_that_is_too_large_removes_the_one_before() -> None:
    """Readers then learn from the history; the log states the size."""
    bench = Bench(EMPTY, OK, OK)
    await bench.after(mix_of(4))
    huge = PodMix({PodKind(mem=n, models=("x" * 1000,)): 1.0 for n in range(1, 129)})
    with capture_logs() as logs:
        assert await bench.after(huge) == ["PATCH"]
        assert await bench.after(huge) == []
    assert bench.api.requests[-1].body == {"data": {KEY: None}}
    [line] = logs
    assert (line["event"], line["log_level"]) == ("mix is too large to publish", "warning")
    assert str(MOST_BYTES) in line["error"]


async def test_changes_are_written_at_once_and_then_every_few_seconds(clock: FakeClock) -> None:
    """By the job in the background: of many changes the last one counts."""
    bench = Bench(EMPTY, OK, OK, OK)
    job = asyncio.create_task(bench.publisher.run())
    await asyncio.sleep(10 * LOOK_SECONDS)
    assert bench.api.requests == []
    began = asyncio.get_running_loop().time()
    for number in range(20):
        bench.publisher.use(mix_of(1 + number))
        await asyncio.sleep(WRITE_SECONDS / 16)
    await asyncio.sleep(READ_SECONDS / 2)
    job.cancel()
    writes = [each for each in bench.api.requests if each.method == "PATCH"]
    assert [each.at - began for each in writes] == [
        pytest.approx(after, abs=0.5) for after in (0, WRITE_SECONDS, 2 * WRITE_SECONDS)
    ]
    found = bench.written()
    assert found is not None
    assert found.kinds == {PodKind(mem=20): 20.0}


async def test_a_standby_that_takes_over_publishes_soon(clock: FakeClock) -> None:
    """Its mix may differ from that of the leader before."""
    bench = Bench(published(mix_of(8)), OK)
    bench.term = None
    bench.publisher.use(mix_of(4))
    job = asyncio.create_task(bench.publisher.run())
    await asyncio.sleep(5 * LOOK_SECONDS)
    bench.term, began = 3, asyncio.get_running_loop().time()
    await asyncio.sleep(5 * LOOK_SECONDS)
    job.cancel()
    assert bench.api.requests[-1].at - began <= LOOK_SECONDS
    assert [each.method for each in bench.api.requests] == ["GET", "PATCH"]


async def test_only_what_was_written_delays_the_next_mix(clock: FakeClock) -> None:
    """A process that came to decide, and whose mix changes then, writes at once."""
    bench = Bench(published(mix_of(8)), OK)
    bench.term = None
    bench.publisher.use(mix_of(4))
    job = asyncio.create_task(bench.publisher.run())
    await asyncio.sleep(0)
    bench.term, began = 3, asyncio.get_running_loop().time()
    bench.publisher.use(mix_of(2))
    await asyncio.sleep(WRITE_SECONDS / 4)
    job.cancel()
    assert [each.at - began for each in bench.api.requests] == [0, 0]


# With an API server.


@pytest.mark.slow
async def test_a_running_extender_publishes_what_its_nodes_use_beside_the_history(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a Lease once a scheduler called: until then another replica may be the one."""
    monkeypatch.setattr(mixpublisher, "LOOK_SECONDS", 0.05)
    await cluster.put("nodes", node("n", 16, 16, unit="GiB"))
    data = {HISTORY: "what was there"}
    metadata = {"name": NAME, "namespace": "gpushare"}
    await cluster.put("configmaps", {"metadata": metadata, "data": data})
    for number in range(FEWEST_PODS):
        await cluster.put("pods", pod(f"p{number}", 8 if number % 4 else 2))
    async with Running(cluster, tmp_path, mix_history=WHERE) as extender:
        await extender.ready()
        assert await extender.service._deciding() is None
        await extender.filter(pod("p0", 2), "n")
        assert await extender.service._deciding() == 0
        stored = lambda: cluster.find("configmaps", NAME, "gpushare")["data"]  # noqa: E731
        await until("the mix is published", lambda: KEY in stored())
        written = stored()
        found, used = decode_mix(written[KEY]).mix(), extender.state.ledger.node("n").host.mix
        assert found is not None
        assert list(found.kinds.items()) == list(used.kinds.items())
        assert written[HISTORY] == data[HISTORY]


@pytest.mark.slow
async def test_beside_a_scheduler_with_a_lease_its_holder_publishes(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a scheduler called or not: the first pod goes by the mix of the holder."""
    lease = {"mix_history": WHERE, "nominate_lease": "gpushare/gpushare-scheduler"}
    async with Running(cluster, tmp_path, **lease) as extender:
        await extender.ready()
        for term in (None, 3):
            monkeypatch.setattr(Leadership, "led_term", AsyncMock(return_value=term))
            assert await extender.service._deciding() == term
