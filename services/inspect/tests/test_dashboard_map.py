"""The map of the cluster page, and the rows below it."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from drawncluster import FakeCluster, Gpu
from largecluster import GPUS, large_cluster, large_figures
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries.memory_in_use import Figures, MemoryInUse
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.pages.gpumap import MOST_GPUS, MOST_NODES

pytestmark = pytest.mark.slow

GIB = 1 << 30
CELL = '<button name="at"'
ROW = '<section class="node">'
CELLS = re.compile(r'<button name="at" value="([^"]*)" class="([^"]*)" title="([^"]*)"')


def opened(cluster: FakeCluster, figures: Figures | None = None) -> TestClient:
    """The dashboard of a cluster that was read once."""
    raw = cluster.json().encode()
    feed = Feed(
        lambda: decode(raw),
        DEFAULT_NAMES,
        interval_seconds=3600,
        measure=lambda _: MemoryInUse(figures),
    )
    asyncio.run(feed.refresh())
    return TestClient(make_app(feed))


def cells(client: TestClient, **query: str) -> dict[str, tuple[str, str]]:
    """Class and title of each cell by what it chooses."""
    found = CELLS.findall(client.get("/", params=query).text)
    return {at: (paint, title) for at, paint, title in found}


@pytest.fixture
def few() -> TestClient:
    """Three nodes with GPUs in every state, and pods of two namespaces."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(20)] * 4)
    cluster.node("n2", gpus=[Gpu(20), Gpu(20, healthy=False)], cordoned=True)
    cluster.node("n3", gpus=[Gpu(80, "NVIDIA A100-SXM4-80GB")], ready=False)
    cluster.pod("web", 10, node="n1", index=0).pod("more", 10, node="n1", index=1)
    cluster.pod("train", 10, node="n1", index=1, namespace="research")
    cluster.pod("tune", 1, node="n1", index=2, namespace="research")
    used = {"GPU-n1-0": 4 * GIB, "GPU-n1-1": 20 * GIB, "GPU-n1-3": 0.0}
    return opened(cluster, Figures(gpus=used))


def test_only_gpus_of_nodes_that_accept_pods_are_free(few: TestClient) -> None:
    """Two of n1 in whole and two in part; those of the cordoned and of the unready node are not."""
    text = few.get("/").text
    assert re.search(r"Free</dt>\s*<dd>2\.5 GPUs", text)


def test_a_cell_names_its_gpu_with_all_figures(few: TestClient) -> None:
    """Node, index, model, memory, health and pods; as text, so that colour is not needed."""
    assert cells(few)["n1/1"][1] == (
        "n1 GPU1, Tesla T4: 20 of 20 GiB allocated, 20.0 in use, healthy;"
        " default/more 10 GiB, research/train 10 GiB"
    )
    assert cells(few)["n2/1"] == (
        "p0 sick",
        "n2 GPU1, Tesla T4: 0 of 20 GiB allocated, use unknown, unhealthy; no pods",
    )


@pytest.mark.parametrize(
    ("show", "expected"),
    [
        ("allocated", ["p5", "p10", "p1", "p0", "p0", "p0 sick", "p0"]),
        ("in use", ["p2", "p10", "u", "p0", "u", "u sick", "u"]),
        ("waste", ["p3", "p0", "u", "p0", "u", "u sick", "u"]),
        ("health", ["h0", "h0", "h0", "h0", "h2", "h1 sick", "h3"]),
        ("namespace", ["n0", "n7", "n1", "p0", "p0", "p0 sick", "p0"]),
        ("nonsense", ["p5", "p10", "p1", "p0", "p0", "p0 sick", "p0"]),
    ],
)
def test_cells_are_coloured_by_what_is_chosen(
    few: TestClient, show: str, expected: list[str]
) -> None:
    """Tenths of the memory, rounded up; a state; or the namespace, the most frequent first."""
    found = cells(few, show=show)
    order = [f"{node}/{index}" for node, count in (("n1", 4), ("n2", 2)) for index in range(count)]
    assert [found[at][0] for at in [*order, "n3/0"]] == expected


def test_a_size_lights_the_cells_where_it_fits(few: TestClient) -> None:
    """In class and title of each cell, and as a number."""
    found = cells(few, gib="12")
    assert {at for at, (paint, _) in found.items() if "fits" in paint.split()} == {"n1/2", "n1/3"}
    assert "12 GiB fit;" in found["n1/3"][1]
    assert "12 GiB do not fit;" in found["n1/0"][1]
    text = few.get("/", params={"gib": "12"}).text
    assert "A share of 12 GiB fits now on 2 of 7 GPUs, on 1 node." in text
    assert "fits now on no GPU" in few.get("/", params={"gib": "81"}).text
    assert "fits now" not in few.get("/", params={"gib": "-3"}).text


def test_few_nodes_are_all_rows_and_a_choice_leaves_its_own(few: TestClient) -> None:
    """Nothing chosen: three rows. A GPU: its node, with its figures. A group: its nodes."""
    assert few.get("/").text.count(ROW) == 3
    chosen = few.get("/", params={"at": "n1/1"}).text
    assert chosen.count(ROW) == 1
    assert "GPU1 of node n1" in chosen
    assert "<p>n1 GPU1, Tesla T4: 20 of 20 GiB allocated" in chosen
    assert chosen.count('aria-pressed="true"') == 1
    assert few.get("/", params={"group": "Tesla T4"}).text.count(ROW) == 2
    gone = few.get("/", params={"at": "gone/1"}).text
    assert "matches the choice" in gone


def test_choices_stay_while_others_are_made(few: TestClient) -> None:
    """A cell keeps the other choices as hidden fields; clearing keeps grouping and colour."""
    text = few.get("/", params={"by": "pool", "show": "waste", "gib": "3", "at": "n1/0"}).text
    for name, value in (("by", "pool"), ("show", "waste"), ("gib", "3")):
        assert f'<input type="hidden" name="{name}" value="{value}"/>' in text
    assert '<input type="hidden" name="at"' not in text
    assert 'href="/?by=pool&amp;show=waste&amp;gib=3">Clear the choice' in text


@pytest.fixture(scope="module")
def many() -> Iterator[TestClient]:
    """200 nodes with 1,332 GPUs."""
    cluster = large_cluster()
    client = opened(cluster, large_figures(cluster))
    yield client
    client.close()


def test_many_nodes_are_a_map_without_rows(many: TestClient) -> None:
    """A cell for each GPU; rows only once something is chosen, twenty to a page."""
    text = many.get("/").text
    assert (text.count(CELL), text.count(ROW)) == (GPUS, 0)
    assert "show all 200 nodes" in text
    assert many.get("/", params={"at": "gpu-node-0007/3"}).text.count(ROW) == 1
    group = many.get("/", params={"by": "rack", "group": "rack-2"}).text
    assert group.count(ROW) == 8
    assert many.get("/", params={"group": "Tesla T4"}).text.count(ROW) == 20
    listed = many.get("/", params={"rows": "all"}).text
    assert (listed.count(CELL), listed.count(ROW)) == (0, 50)
    assert 'href="/">Show the map' in listed


def test_the_filter_narrows_the_map(many: TestClient) -> None:
    """To the GPUs of the nodes that match."""
    assert set(cells(many, q="gpu-node-0199")) == {f"gpu-node-0199/{index}" for index in range(4)}


@pytest.mark.parametrize("path", ["/", "/?gib=24&show=namespace&by=rack", "/?group=Tesla+T4"])
def test_the_page_of_a_large_cluster_is_small_on_the_wire(many: TestClient, path: str) -> None:
    """Compressed below 48 KiB, and below 320 KiB as a document."""
    answer = many.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert int(answer.headers["Content-Length"]) < 48 << 10
    assert len(answer.content) < 320 << 10


def test_a_cell_is_a_node_where_gpus_are_too_many() -> None:
    """Sums of its GPUs; what is beyond the bound is counted."""
    nodes = MOST_NODES + 2
    cluster = FakeCluster()
    for number in range(nodes):
        cluster.node(f"n{number}", gpus=[Gpu(15), Gpu(15, healthy=number != 0)])
    cluster.pod("web", 9, node="n0", index=0)
    assert 2 * nodes > MOST_GPUS
    client = opened(cluster)
    text = client.get("/", params={"gib": "7"}).text
    assert text.count(CELL) == MOST_NODES
    assert "Each cell is a node" in text
    assert "2 more nodes are not on the map." in text
    assert cells(client, gib="7")["n0"] == (
        "p3 full sick",
        (
            "n0, 2 GPUs Tesla T4: 9 of 30 GiB allocated, use unknown, 1 unhealthy,"
            " 7 GiB do not fit; 1 pod"
        ),
    )
    assert client.get("/", params={"at": "n0"}).text.count(ROW) == 1
    assert set(cells(client, q="n1000")) == {"n1000/0", "n1000/1"}


def test_amounts_of_a_large_cluster_have_all_digits() -> None:
    """Two million GiB in one group, of which one node has some allocated."""
    cluster = FakeCluster()
    for number in range(1_700):
        cluster.node(f"n{number}", gpus=[Gpu(141)] * 8)
    text = opened(cluster.pod("web", 77, node="n0", index=0)).get("/").text
    assert "13600 GPUs, 77 of 1917600 GiB allocated" in text
    assert "77/1917600 GiB" in text


def test_text_of_labels_is_never_markup() -> None:
    """Values of labels are escaped as all other text."""
    label = '"><script>alert(1)</script>'
    client = opened(FakeCluster().node("n1", gpus=[Gpu(15)], labels={"odd": label}))
    text = client.get("/", params={"label": "odd", "group": label}).text
    assert "<script>alert" not in text
    assert text.count(ROW) == 1


def test_every_node_that_is_not_on_the_map_is_counted() -> None:
    """Also where nodes have two models, and so a cell in each of two groups."""
    cluster = FakeCluster()
    for number in range(MOST_NODES - 100):
        cluster.node(f"n{number}", gpus=[Gpu(15), Gpu(40, "NVIDIA A100-PCIE-40GB")])
    client = opened(cluster)
    text = client.get("/").text
    assert text.count(CELL) == MOST_NODES
    assert "more nodes are not on the map" not in text
    cluster.node("n9999", gpus=[Gpu(16, "Tesla V100")])
    assert "1 more nodes are not on the map." in opened(cluster).get("/").text


@pytest.mark.parametrize(("unit", "address"), [("GiB", "/whatif?mem=7"), ("MiB", "/whatif")])
def test_the_link_to_what_if_has_the_size_in_the_unit_of_all_nodes(unit: str, address: str) -> None:
    """A request is a number of units, so that it has no size where those of the nodes differ."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(15)])
    cluster.node("n2", gpus=[Gpu(15 if unit == "GiB" else 15 << 10)], unit=unit)
    text = opened(cluster).get("/", params={"gib": "7"}).text
    assert f'are not considered: <a href="{address}">What if</a>' in text
