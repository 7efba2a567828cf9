"""What a bind does when the API server, the pod or another scheduler gets in its way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web
from objects import node, pod
from running import WAIT_SECONDS, Running, until

from gpuextender import metrics
from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow


async def prepare(cluster: FakeApiServer, extender: Running, *mem: int) -> dict[str, Any]:
    """A node of 2 x 15 and a pod that the extender knows."""
    await cluster.put("nodes", node("n", 15, 15, unit="GiB"))
    item = await cluster.put("pods", pod("p", *(mem or (2,))))
    await extender.knows_node("n")
    await until("the pod is known", lambda: extender.state.find("default", "p"))
    return item


def used(extender: Running) -> int:
    """Units counted on the node."""
    figure: int = extender.state.ledger.node("n").used_units
    return figure


async def test_an_answer_that_got_lost_is_found_out(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The Binding was done but the answer was a 500: the second try's conflict is our own bind."""
    item = await prepare(cluster, extender)

    async def lose_the_answer(request: web.Request) -> web.Response:
        await cluster.apply_binding(request)
        return status(500, "etcd leader changed")

    cluster.fail_next("bind", lose_the_answer)
    assert await extender.bind(item, "n") == (200, "")
    assert len(cluster.bindings) == 1
    assert used(extender) == 2


async def test_silence_keeps_the_reservation_and_a_retry_learns_the_truth(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """No answer within the deadline: units stay reserved, for the bind may have been done."""
    async with Running(cluster, tmp_path, bind_deadline=0.2) as extender:
        await extender.ready()
        item = await prepare(cluster, extender)
        release = asyncio.Event()

        async def hang(_: web.Request) -> web.Response:
            await release.wait()
            return status(503, "too late")

        cluster.fail_next("bind", hang)
        code, error = await extender.bind(item, "n")
        assert code == 500
        assert error
        assert used(extender) == 2
        release.set()
        async with asyncio.timeout(WAIT_SECONDS):
            while await extender.bind(item, "n") != (200, ""):  # its deadline is short, too
                assert used(extender) == 2
        assert used(extender) == 2
        assert len(cluster.bindings) == 1


async def test_reservations_that_nothing_confirms_expire(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """An unanswered bind that was never done gives its units back after the time to live."""
    async with Running(cluster, tmp_path, bind_deadline=0.1, assume_ttl=0.4) as extender:
        await extender.ready()
        item = await prepare(cluster, extender)
        release = asyncio.Event()

        async def hang(_: web.Request) -> web.Response:
            await release.wait()
            return status(503, "too late")

        cluster.fail_next("bind", hang)
        expired = {"event": "reservations expired", "uids": [item["metadata"]["uid"]]}
        with structlog.testing.capture_logs() as logged:
            assert (await extender.bind(item, "n"))[0] == 500
            await until("expired", lambda: any(expired.items() <= line.items() for line in logged))
        assert used(extender) == 0
        release.set()


async def test_the_same_bind_at_once_is_one_write(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Eight equal requests at the same time share one attempt and all succeed."""
    item = await prepare(cluster, extender)
    answers = await asyncio.gather(*(extender.bind(item, "n") for _ in range(8)))
    assert answers == [(200, "")] * 8
    assert len(cluster.bindings) == 1
    assert used(extender) == 2


async def test_many_binds_at_once_never_overfill_a_gpu(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Forty pods of 4 race for 2 x 15: three fit on each GPU, whatever the order of answers."""
    await cluster.put("nodes", node("n", 15, 15, unit="GiB"))
    await extender.knows_node("n")
    items = [await cluster.put("pods", pod(f"p{i}", 4)) for i in range(40)]
    answers = await asyncio.gather(*(extender.bind(item, "n") for item in items))
    assert sum(code == 200 for code, _ in answers) == 6
    gpus = [b["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] for b in cluster.bindings]
    assert sorted(gpus) == ["0"] * 3 + ["1"] * 3


async def test_a_pod_that_a_filter_saw_needs_no_read(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The pod that came with the filter is enough for its bind."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await extender.knows_node("n")
    async with cluster.silent_watches():
        item = await cluster.put("pods", pod("p", 2))
        await extender.filter(item, "n")
        assert await extender.bind(item, "n") == (200, "")
    assert cluster.count("GET", "/pods/p") == 0


async def test_a_pod_that_requests_no_gpu_is_simply_bound(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The extender binds for the whole scheduler, also pods of an ordinary kind."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await extender.knows_node("n")
    item = await cluster.put("pods", pod("p"))
    assert (await extender.filter(item, "n"))["NodeNames"] == ["n"]
    assert await extender.bind(item, "n") == (200, "")
    assert cluster.bindings[0]["metadata"]["annotations"] == {}


async def test_compute_and_whole_gpus_are_bound_too(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Percent of compute goes with memory, exclusive GPUs are named as a group."""
    both = node("n", 15, 15, 15, unit="GiB")
    both["status"]["capacity"]["aliyun.com/gpu"] = "3"
    await cluster.put("nodes", both)
    await extender.knows_node("n")
    share = await cluster.put("pods", pod("share", 4, core=30))
    whole = await cluster.put("pods", pod("whole", gpus=2))
    assert await extender.bind(share, "n") == (200, "")
    assert await extender.bind(whole, "n") == (200, "")
    [first, second] = [binding["metadata"]["annotations"] for binding in cluster.bindings]
    assert first["gpushare.alibabacloud.com/core-percentage"] == '{"0":{"0":30}}'
    assert second["ALIYUN_COM_GPU_GROUP"] == "1,2"
    answer = await extender.filter(pod("late", gpus=1), "n")
    assert "GPU 0 is shared" in answer["FailedNodes"]["n"]


async def test_events_report_where_a_pod_went_and_why_it_did_not(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A Normal event for the placement; failures are one Warning, counted, not one each."""
    item = await prepare(cluster, extender)
    large = await cluster.put("pods", pod("large", 40))
    before = metrics.EVENTS.labels("aggregated")._value.get()
    for _ in range(5):
        assert (await extender.bind(large, "n"))[0] == 500
    await extender.bind(item, "n")
    await until("both events", lambda: len(cluster.all("events")) == 2)
    warning, normal = cluster.all("events")
    assert (warning["type"], warning["involvedObject"]["name"]) == ("Warning", "large")
    assert "Insufficient GPU Memory in one device" in warning["message"]
    assert (normal["type"], normal["reason"]) == ("Normal", "GpuPlaced")
    assert normal["message"] == "Placed: 2 GiB on GPU 0 of node n"
    assert metrics.EVENTS.labels("aggregated")._value.get() == before + 4


async def test_a_bind_is_one_write_besides_its_event(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Ten binds are ten Bindings and ten events, and nothing else reaches the API server."""
    await cluster.put("nodes", node("n", 15, 15, unit="GiB"))
    await extender.knows_node("n")
    for i in range(10):
        item = await cluster.put("pods", pod(f"p{i}", 3))
        await extender.bind(item, "n")
    await until("events", lambda: len(cluster.all("events")) == 10)
    writes = [path for method, path in cluster.requests if method != "GET"]
    assert sorted(path.rsplit("/", 1)[-1] for path in writes) == ["binding"] * 10 + ["events"] * 10
