"""How the parts of the extender are put together: times of its jobs, and who hears of a change."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from objects import node, placed, pod
from running import Running, until

from gpuextender import service
from gpukube.testing.apiserver import FakeApiServer


@pytest.mark.slow
@pytest.mark.parametrize(("deadline", "expire_after"), [(3.0, 50.0), (60.0, 61.0)])
async def test_jobs_wait_for_as_long_as_a_bind_may_take(
    cluster: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deadline: float,
    expire_after: float,
) -> None:
    """A list shows lost Bindings only once every bind from before it has ended.

    No reservation expires before its bind has ended: the GPUs would be allocated twice.
    """
    times: dict[str, float] = {}

    async def forget(*_: Any, seconds: float) -> None:
        times["forget"] = seconds
        await asyncio.Event().wait()

    async def expire(*_: Any, ttl: float) -> None:
        times["expire"] = ttl
        await asyncio.Event().wait()

    monkeypatch.setattr(service, "forget_after_lists", forget)
    monkeypatch.setattr(service, "expire_reservations", expire)
    async with Running(cluster, tmp_path, bind_deadline=deadline, assume_ttl=50.0) as extender:
        await extender.ready()
    assert times == {"forget": deadline + 1.0, "expire": expire_after}


@pytest.mark.slow
async def test_a_change_is_seen_by_verbs_and_metrics(
    cluster: FakeApiServer, extender: Running
) -> None:
    """What was answered before is not answered again once the node has changed."""
    await cluster.put("nodes", node("n", 16, unit="GiB"))
    await extender.knows_node("n")
    pending = pod("pending", 10)
    assert (await extender.filter(pending, "n"))["NodeNames"] == ["n"]
    line = "gpushare_extender_gpu_units{"
    before = [each for each in await metrics(extender) if each.startswith(line)]
    holder = placed(pod("holder", 9, uid="holder"), "n", 0)
    await cluster.put("pods", holder)
    await extender.knows_pod("holder")
    assert (await extender.filter(pending, "n"))["NodeNames"] == []
    after = [each for each in await metrics(extender) if each.startswith(line)]
    assert before
    assert before != after
    await cluster.delete("pods", "holder", "default")
    await until("the pod is gone", lambda: not extender.state.ledger.allocations())
    assert (await extender.filter(pending, "n"))["NodeNames"] == ["n"]


async def metrics(extender: Running) -> list[str]:
    """The lines of a scrape."""
    _, text = await extender.get("/metrics")
    return str(text).splitlines()
