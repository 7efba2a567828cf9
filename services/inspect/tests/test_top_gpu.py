"""``gpushare top gpu``: memory allocated and in use, side by side."""

import json
from pathlib import Path

import pytest
from drawncluster import FakeCluster, Gpu
from fakeprometheus import serving
from invoking import Run

from gpuinspect.sources.prometheus import USED_BYTES, UTILIZATION

GIB = 1 << 30


@pytest.fixture
def two(cluster: FakeCluster) -> FakeCluster:
    """A node with two GPUs; one has a share."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)])
    return cluster.pod("web", 6, node="n", index=1)


def rows(out: str) -> list[list[str]]:
    """Cells of the lines below the heads."""
    return [
        line.replace("Tesla T4", "T4").replace(" GiB", "").split() for line in out.splitlines()[1:]
    ]


def test_use_is_beside_the_allocation(run: Run, two: FakeCluster) -> None:
    """More than 100% is use beyond the shares."""
    answers = {USED_BYTES: {"GPU-n-1": str(9 * GIB)}, UTILIZATION: {"GPU-n-1": "42"}}
    with serving(answers) as url:
        out = run("top", "gpu", "--prometheus", url, "--sort-by", "used", on=two).out
    assert rows(out) == [
        ["n", "1", "T4", "15.0", "6.0", "9.0", "150%", "42%"],
        ["n", "0", "T4", "15.0", "0.0", "-", "-", "-"],
    ]


def test_without_prometheus_use_is_unknown(run: Run, two: FakeCluster) -> None:
    """A note names the option."""
    outcome = run("top", "gpu", on=two)
    assert rows(outcome.out)[1] == ["n", "1", "T4", "15.0", "6.0", "-", "-", "-"]
    assert "give --prometheus URL" in outcome.err


def test_a_live_table_without_a_terminal(run: Run, two: FakeCluster, tmp_path: object) -> None:
    """Each update is a table below the one before."""
    flags = ("--watch", "--count=1", "--sort-by=allocated")
    out = run("top", "gpu", *flags, on=two).out
    assert rows(out)[0][:2] == ["n", "1"]
    assert out.count("NODE") == 1


def test_the_header_names_the_source_of_the_total(run: Run) -> None:
    """NVML reports more than can be allocated: 15.8 GiB here, where inspect shows 15."""
    path = Path(__file__).parents[3] / "docs" / "examples" / "t4.json"
    out = run("top", "gpu", "--snapshot", str(path)).out
    assert out.splitlines()[0].split()[3:5] == ["TOTAL(NVML)", "ALLOCATED"]
    assert rows(out)[0][:5] == ["t4", "0", "T4", "15.8", "10.0"]
    assert "10/15" in run("inspect", "--snapshot", str(path)).out
    assert "inspect shows what of it can be allocated" in " ".join(
        run("top", "gpu", "-h").out.split()
    )


def test_a_node_of_an_original_plugin_has_no_total(run: Run, cluster: FakeCluster) -> None:
    """It does not report what NVML reports; what is allocated is known all the same."""
    cluster.node("old", total=30, count=2).pod("web", 6, node="old", index=1)
    assert rows(run("top", "gpu", on=cluster).out) == [
        ["old", "0", "-", "-", "0.0", "-", "-", "-"],
        ["old", "1", "-", "-", "6.0", "-", "-", "-"],
    ]


def test_the_memory_of_original_plugins_is_counted(run: Run, cluster: FakeCluster) -> None:
    """The node's GPUs have what it offers, not 0, with the figures of Prometheus as well."""
    cluster.node("old", total=30, count=2).pod("web", 6, node="old", index=1)
    with serving({}) as url:
        out = run("top", "node", "old", "--metric", "--prometheus", url, on=cluster).out
    words = " ".join(out.split())
    assert "Total GPU Memory: 30.0 GiB Allocated GPU Memory: 6.0 GiB" in words


def test_a_node_that_offers_its_gpus_twice_is_a_note(run: Run, two: FakeCluster) -> None:
    """The GPUs of all nodes are shown."""
    both = {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    outcome = run("top", "gpu", on=two.node("x", gpus=[Gpu(15)], resources=both))
    assert [row[0] for row in rows(outcome.out)] == ["n", "n", "x"]
    sentence = "note: x offers nvidia.com/gpu and aliyun.com/gpu-mem of the same GPUs: remove"
    assert (outcome.code, sentence in " ".join(outcome.err.split())) == (0, True)


def test_gpus_are_a_document(run: Run, two: FakeCluster) -> None:
    """As of ``top node --metric``, of the nodes that match and have GPUs."""
    two.node("m", gpus=[Gpu(15)], labels={"zone": "a"}).node("plain", resources={})
    (node,) = json.loads(run("top", "gpu", "-l", "zone=a", "-o", "json", on=two).out)["items"]
    assert (node["name"], [gpu["usedBytes"] for gpu in node["gpus"]]) == ("m", [None])
    assert run("top", "gpu", "-o", "name", on=two).out == "node/m\nnode/n\n"


def test_a_live_table_is_no_document(run: Run, two: FakeCluster) -> None:
    """A stream of documents could not be told apart."""
    outcome = run("top", "gpu", "-w", "-o", "yaml", on=two)
    assert outcome.code == 2
    assert "--watch refreshes a table: it takes no -o yaml" in outcome.err
