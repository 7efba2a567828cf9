"""Whatever is sent, the service answers as its OpenAPI document defines and never breaks."""

import asyncio
from collections.abc import Coroutine, Iterator
from threading import Thread
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from objects import node, placed, pod
from running import WAIT_SECONDS, Running
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gpukube.testing.apiserver import FakeApiServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the work of many seconds

MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
OTHER_PREFIXES = "^/(gputopology-scheduler|gpu-scheduler-extender)/"
CHECKS = (status_code_conformance, content_type_conformance, response_schema_conformance)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ready extender that runs in a thread, for the fuzzer is synchronous."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)

    def there(work: Coroutine[None, None, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(2 * WAIT_SECONDS)

    async def start() -> tuple[FakeApiServer, Running]:
        cluster = await FakeApiServer().__aenter__()
        await cluster.put("nodes", node("node-1", 15, 15, unit="GiB"))
        await cluster.put("pods", placed(pod("p", 8), "node-1", 0))
        extender = await Running(cluster, tmp_path_factory.mktemp("fuzz")).__aenter__()
        await extender.ready()
        return cluster, extender

    async def stop() -> None:
        await extender.__aexit__()
        await cluster.__aexit__()

    thread.start()
    try:
        cluster, extender = there(start())
        yield extender.url
        there(stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_SECONDS)
        loop.close()


def test_every_route_answers_as_its_document_describes(url: str) -> None:
    """No undocumented status, no other shape; a 500 only from bind, whose contract it is."""
    document = schemathesis.openapi.from_url(f"{url}/openapi.json")
    tried = set()
    for found in document.exclude(path_regex=OTHER_PREFIXES).get_all_operations():
        operation = found.ok()
        checks = [*CHECKS] if operation.path.endswith("/bind") else [*CHECKS, not_a_server_error]
        _try(operation, checks)
        tried.add(operation.path)
    assert {"/gpushare-scheduler/filter", "/api/v1/whatif", "/metrics"} <= tried


def _try(operation: Any, checks: list[Any]) -> None:
    """Thirty requests to one route, some as they should be and some not."""

    @given(case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in MODES)))
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=HealthCheck)
    def requests(case: Any) -> None:
        case.call_and_validate(checks=checks, timeout=WAIT_SECONDS)

    requests()
