"""The cells of the map: figures, groups, order, and where a share of a size fits now."""

from collections.abc import Mapping

import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries.gpumap import GpuCell, gpu_cells, grouped_cells, with_fits
from gpuinspect.queries.shares import cluster_view
from gpuinspect.queries.views import natural


def cells_of(
    cluster: FakeCluster, in_use: Mapping[str, float] | None = None, gib: int = 0
) -> dict[str, GpuCell]:
    """The cells by ``NODE/INDEX``."""
    snapshot = decode(cluster.json().encode())
    ledger = ledger_of(snapshot, DEFAULT_NAMES)
    view = cluster_view(snapshot, DEFAULT_NAMES)
    cells = gpu_cells(view, (in_use or {}).get)
    found = with_fits(cells, ledger, gib) if gib else cells
    return {f"{cell.node}/{cell.index}": cell for cell in found}


def test_a_cell_has_the_figures_and_pods_of_its_gpu() -> None:
    """Allocated, total, in use and waste in GiB; pods in natural order."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(15), Gpu(15)])
    cluster.pod("web-10", 4, node="n1", index=0).pod("web-2", 2, node="n1", index=0)
    first, second = cells_of(cluster, {"GPU-n1-0": 1.5}).values()
    assert (first.allocated, first.total, first.in_use, first.waste) == (6, 15, 1.5, 4.5)
    assert [pod.name for pod in first.pods] == ["web-2", "web-10"]
    assert first.model == "Tesla T4"
    assert (second.in_use, second.waste, second.pods) == (None, None, ())


def test_amounts_are_in_gib_where_nodes_count_in_different_units() -> None:
    """A node that counts in MiB and one that counts in GiB have comparable cells."""
    cluster = FakeCluster().node("big", gpus=[Gpu(40)])
    cluster.node("small", gpus=[Gpu(15360)], unit="MiB")
    cluster.pod("a", 10, node="big", index=0).pod("b", 1536, node="small", index=0)
    cells = cells_of(cluster)
    assert (cells["big/0"].allocated, cells["big/0"].total) == (10, 40)
    assert (cells["small/0"].allocated, cells["small/0"].total) == (1.5, 15)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"gpus": [Gpu(15, healthy=False)]}, "unhealthy"),
        ({"gpus": [Gpu(15)], "cordoned": True}, "cordoned"),
        ({"gpus": [Gpu(15)], "ready": False}, "not ready"),
        ({"gpus": [Gpu(15)]}, "healthy"),
    ],
)
def test_a_share_fits_only_where_new_pods_go(node: dict[str, object], expected: str) -> None:
    """Not on an unhealthy GPU, and on no GPU of a node that is cordoned or not ready."""
    (cell,) = cells_of(FakeCluster().node("n1", **node), gib=4).values()  # type: ignore[arg-type]
    assert cell.state == expected
    assert cell.fits is (expected == "healthy")


def test_a_share_fits_where_the_memory_of_one_gpu_is_free() -> None:
    """By what is left of each GPU, not of the node; never on a GPU that one pod holds whole."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(15)] * 3)
    cluster.pod("a", 6, node="n1", index=0).pod("b", 5, node="n1", index=1)
    fits = {at: cell.fits for at, cell in cells_of(cluster, gib=10).items()}
    assert fits == {"n1/0": False, "n1/1": True, "n1/2": True}
    assert [cell.fits for cell in cells_of(cluster, gib=16).values()] == [False] * 3
    assert [cell.fits for cell in cells_of(cluster).values()] == [None] * 3


def test_the_size_is_counted_in_the_unit_of_each_node() -> None:
    """10 GiB are 10,240 units where a node counts in MiB."""
    cluster = FakeCluster().node("small", gpus=[Gpu(10239), Gpu(10240)], unit="MiB")
    assert [cell.fits for cell in cells_of(cluster, gib=10).values()] == [False, True]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("model", {"A100": ["n2/0"], "Tesla T4": ["n1/0", "n10/0"]}),
        ("pool", {"gold": ["n2/0"], "": ["n1/0", "n10/0"]}),
        ("rack", {"rack-2": ["n1/0"], "rack-10": ["n2/0"], "": ["n10/0"]}),
        ("label:zone", {"a": ["n10/0"], "": ["n1/0", "n2/0"]}),
    ],
)
def test_groups_are_in_natural_order_and_nodes_without_the_label_last(
    by: str, expected: dict[str, list[str]]
) -> None:
    """By model, by the pool's and rack's labels of clouds, and by any label."""
    cluster = FakeCluster()
    cluster.node("n10", gpus=[Gpu(15)], labels={"zone": "a"})
    rack = "topology.kubernetes.io/rack"
    labels = {rack: "rack-10", "eks.amazonaws.com/nodegroup": "gold"}
    cluster.node("n2", gpus=[Gpu(40, "A100")], labels=labels)
    cluster.node("n1", gpus=[Gpu(15)], labels={rack: "rack-2"})
    snapshot = decode(cluster.json().encode())
    nodes = {node.name: node for node in snapshot.nodes}
    groups = grouped_cells(cells_of(cluster).values(), nodes, by)
    found = {each.name: [f"{gpu.node}/{gpu.index}" for gpu in each.gpus] for each in groups}
    assert found == expected
    assert list(found) == list(expected)


def test_numbers_in_names_are_compared_as_numbers() -> None:
    """``wait-2`` before ``wait-10``; zeros and text decide between equal numbers."""
    names = ["wait-10", "b", "wait-2", "a1b2", "a1b", "wait-02", "a", "1", "9" * 5000]
    ordered = ["1", "9" * 5000, "a", "a1b", "a1b2", "b", "wait-02", "wait-2", "wait-10"]
    assert sorted(names, key=natural) == ordered
