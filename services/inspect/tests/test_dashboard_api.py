"""``/api/v1`` of the dashboard: the documents of the map and of sizes, and who may read them."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from measuredworkloads import history
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster import snapshots
from gpuinspect.cluster.snapshots import decode
from gpuinspect.cluster.usage_histories import ReadHistories
from gpuinspect.documents.gpumap import GpuMapDoc
from gpuinspect.documents.recommend import WorkloadSizeList
from gpuinspect.queries.memory_in_use import Figures, MemoryInUse
from gpuinspect.queries.sizes import sizes_of
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.sizing import CachedSizes

FORMS = Path(__file__).parent / "golden" / "forms"
GIB = 1 << 30
PATHS = {"gpumap": "/api/v1/gpus?by=pool&gib=10", "sizes": "/api/v1/sizes"}
KINDS = {"gpumap": GpuMapDoc, "sizes": WorkloadSizeList}


class Nobody:
    """A reviewer that accepts one token."""

    def may_look(self, token: str) -> bool:
        """The token is the right one."""
        return token == "right"


def feed_of(cluster: FakeCluster) -> Feed:
    """A feed with memory in use and a history, at a fixed time."""
    raw = cluster.json().encode()
    sizes = CachedSizes(sizes_of(lambda _: ReadHistories((history("web-0", 2, kind="Pod"),))))
    return Feed(
        lambda: decode(raw),
        DEFAULT_NAMES,
        interval_seconds=3600,
        measure=lambda _: MemoryInUse(Figures(gpus={"GPU-gpu-a-0": 2.5 * GIB})),
        clock=lambda: datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC).timestamp(),
        sizes=sizes,
    )


@pytest.fixture
def feed() -> Feed:
    """Of two nodes, one in a pool."""
    labels = {"eks.amazonaws.com/nodegroup": "gold"}
    cluster = FakeCluster().node("gpu-a", gpus=[Gpu(15), Gpu(15)], labels=labels)
    cluster.node("gpu-b", gpus=[Gpu(15, healthy=False)])
    return feed_of(cluster.pod("web-0", 16, node="gpu-a", index=0))


def document(feed: Feed, path: str) -> dict[str, Any]:
    """The reply of a dashboard that has read the cluster."""
    asyncio.run(feed.refresh())
    answer = TestClient(make_app(feed)).get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("name", PATHS)
def test_documents_are_those_of_the_golden_files(feed: Feed, name: str) -> None:
    """``UPDATE_GOLDEN=1`` writes them anew, as the documents of the commands."""
    found = document(feed, PATHS[name])
    path = FORMS / f"{name}.json"
    if "UPDATE_GOLDEN" in os.environ:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        path.with_suffix(".yaml").write_text(yaml.safe_dump(found), encoding="utf-8")
    assert found == json.loads(path.read_text(encoding="utf-8"))
    msgspec.convert(found, KINDS[name])


def test_the_map_has_the_figures_and_choices_of_the_page(feed: Feed) -> None:
    """Groups, in use, health, pods and where the size fits."""
    found = document(feed, PATHS["gpumap"])
    groups = {group["name"]: group["gpus"] for group in found["groups"]}
    assert (found["groupBy"], found["fitGiB"], list(groups)) == ("pool", 10, ["gold", ""])
    first, second = groups["gold"]
    assert (first["allocated"], first["inUse"], first["fits"]) == (16, 2.5, False)
    assert first["pods"] == [{"namespace": "default", "name": "web-0", "gib": 16}]
    assert (second["inUse"], second["fits"]) == (None, True)
    assert groups[""][0]["health"] == "unhealthy"
    assert document(feed, "/api/v1/gpus")["groups"][0]["gpus"][0]["fits"] is None


@pytest.mark.parametrize(
    ("query", "accepted"),
    [
        ("by=modle", "by is one of model, pool, rack; label=KEY groups by a label of the nodes"),
        ("gib=1.5", "gib is a whole number of GiB from 0 to 99999"),
        ("gib=-3", "gib is a whole number of GiB from 0 to 99999"),
        ("gib=100000", "gib is a whole number of GiB from 0 to 99999"),
    ],
)
def test_a_wrong_choice_is_refused(feed: Feed, query: str, accepted: str) -> None:
    """A program would take the document for the answer to its question; the reason is JSON."""
    asyncio.run(feed.refresh())
    answer = TestClient(make_app(feed)).get(f"/api/v1/gpus?{query}")
    assert (answer.status_code, answer.json()) == (400, {"error": accepted})


def test_sizes_have_the_waste_of_running_pods(feed: Feed) -> None:
    """Beside the recommendation, as ``gpushare recommend`` prints it."""
    (item,) = document(feed, PATHS["sizes"])["items"]
    assert (item["runningPods"], item["wastePerPodGiB"], item["wasteGiB"]) == (1, 14, 14)
    assert item["recommendation"]["recommended"] == {"request": 3, "burst": 0}


def test_before_the_first_read_the_reason_is_a_document(feed: Feed) -> None:
    """With the status of a service that is not ready."""
    answer = TestClient(make_app(feed)).get("/api/v1/gpus")
    assert answer.status_code == 503
    assert answer.json() == {"error": "the cluster has not been read yet"}


@pytest.mark.parametrize("path", PATHS.values())
def test_stale_documents_have_the_reason(feed: Feed, path: str) -> None:
    """While reads fail, ``error`` is the reason; it is empty once a read succeeds."""
    read = feed._read
    assert document(feed, path)["error"] == ""
    feed._read = lambda: snapshots.read(Path("/absent"))
    reason = "cannot read the snapshot /absent: No such file or directory"
    assert document(feed, path)["error"] == reason
    feed._read = read
    assert document(feed, path)["error"] == ""


@pytest.mark.parametrize("path", ["/api/v1/gpus", "/api/v1/sizes"])
def test_programs_need_a_token_and_get_no_form(feed: Feed, path: str) -> None:
    """401 without one, 403 with a wrong one, the document with a right one."""
    asyncio.run(feed.refresh())
    client = TestClient(make_app(feed, Nobody()), follow_redirects=False)
    tokens = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer right"}]
    assert [client.get(path, headers=each).status_code for each in tokens] == [401, 403, 200]


def test_nothing_is_served_but_to_get(feed: Feed) -> None:
    """As every route of the dashboard."""
    asyncio.run(feed.refresh())
    client = TestClient(make_app(feed))
    assert [client.post(path).status_code for path in PATHS.values()] == [405, 405]
