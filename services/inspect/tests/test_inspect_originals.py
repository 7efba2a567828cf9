"""The tables of the original ``kubectl inspect gpushare``, to the byte."""

import json
from collections.abc import Callable

import pytest
from drawncluster import FakeCluster
from invoking import Run

FIRST = "cn-shanghai.i-uf61h64dz1tmlob9hmtb"
SECOND = "cn-shanghai.i-uf61h64dz1tmlob9hmtc"
Golden = Callable[[str], str]


def test_summary_of_two_nodes(run: Run, cluster: FakeCluster, golden: Golden) -> None:
    """Two nodes with one GPU of 15 each, 6 and 3 in use, print the sample of the original."""
    cluster.node(SECOND, address="192.168.0.70", total=15)
    cluster.node(FIRST, address="192.168.0.71", total=15)
    for name in ("binpack-1-0", "binpack-1-1"):
        cluster.pod(name, 3, node=FIRST, index=0)
    cluster.pod("binpack-1-2", 3, node=SECOND, index=0)
    outcome = run("inspect", on=cluster)
    assert outcome == (0, golden("inspect-two-nodes.txt"), "")


def test_summary_with_pending_units_and_unequal_nodes(
    run: Run, cluster: FakeCluster, golden: Golden
) -> None:
    """A node with fewer GPUs shows 0/0 for the others; pending units have their own column."""
    cluster.node("n1", address="10.0.0.1", total=60, count=4)
    cluster.node("n2", total=22, count=2)
    cluster.pod("a", 15, node="n1", index=0).pod("b", 9, node="n1", index=1)
    cluster.pod("c", 3, node="n2", index=0).pod("d", 2, node="n2")
    outcome = run("inspect", on=cluster)
    assert (outcome.code, outcome.out) == (0, golden("inspect-pending.txt"))


def test_pending_is_explained_beside_the_table(run: Run, cluster: FakeCluster) -> None:
    """What PENDING means, and whose units they are, is a note on stderr."""
    cluster.node("n2", total=22, count=2).pod("d", 2, node="n2")
    noted = run("inspect", on=cluster).err
    assert "note: n2: 2 GiB PENDING, bound to the node, GPU unknown" in noted
    assert "default/d" in noted


@pytest.mark.parametrize("arguments", [("-d", FIRST), (FIRST, "-d"), ("-d",)])
def test_details(
    run: Run, cluster: FakeCluster, golden: Golden, arguments: tuple[str, ...]
) -> None:
    """Details print the sample of the original, with the flag before or after the node."""
    cluster.node(FIRST, address="192.168.0.71", total=15)
    for i in range(3):
        cluster.pod(f"binpack-1-{i}", 2, node=FIRST, index=0)
    assert run("inspect", *arguments, on=cluster) == (0, golden("inspect-details.txt"), "")


@pytest.mark.parametrize(
    ("used", "line"), [((15, 9, 0, 0), "24/60 (40%)"), ((4, 4, 0, 4), "12/60 (20%)")]
)
def test_totals_of_a_node_with_four_gpus(
    run: Run, cluster: FakeCluster, used: tuple[int, ...], line: str
) -> None:
    """The last line sums all GPUs and truncates the percentage."""
    cluster.node("n", total=60, count=4)
    for index, units in enumerate(used):
        if units:
            cluster.pod(f"p{index}", units, node="n", index=index)
    assert run("inspect", on=cluster).out.splitlines()[-1] == f"{line}  "


def test_first_generation_annotation_names_the_gpu(run: Run, cluster: FakeCluster) -> None:
    """A pod of 8 units with index 1 is on GPU 1."""
    cluster.node("n", total=30, count=2).pod("p", 8, node="n", index=1)
    assert _row(run("inspect", on=cluster).out)[2:4] == ["0/15", "8/15"]


def test_second_generation_map_sums_containers(run: Run, cluster: FakeCluster) -> None:
    """Two containers on one GPU are one amount there, whatever the first generation states."""
    spread = json.dumps({"0": {"1": 1}, "1": {"1": 7}})
    cluster.node("n", total=30, count=2)
    cluster.pod(
        "p", (1, 7), node="n", annotations={"scheduler.framework.gpushare.allocation": spread}
    )
    assert _row(run("inspect", on=cluster).out)[2:4] == ["0/15", "8/15"]


def test_second_generation_map_with_compute(run: Run, cluster: FakeCluster) -> None:
    """Compute of two containers on one GPU adds up in the document beside their memory."""
    annotations = {
        "scheduler.framework.gpushare.allocation": json.dumps({"0": {"1": 1}, "1": {"1": 7}}),
        "gpushare.alibabacloud.com/core-percentage": json.dumps({"0": {"1": 50}, "1": {"1": 50}}),
    }
    cluster.node("n", total=30, count=2)
    cluster.pod(
        "p",
        (1, 7),
        node="n",
        annotations=annotations,
        limits={"aliyun.com/gpu-core.percentage": "50"},
    )
    document = json.loads(run("inspect", "-o", "json", on=cluster).out)
    gpu = document["items"][0]["gpus"][1]
    assert (gpu["allocated"], gpu["corePercent"]) == (8, 100)


def test_pods_that_have_ended_hold_nothing(run: Run, cluster: FakeCluster) -> None:
    """Succeeded and Failed pods are gone from the figures; a terminating one still counts."""
    cluster.node("n", total=15)
    cluster.pod("done", 4, node="n", index=0, phase="Succeeded")
    cluster.pod("broken", 4, node="n", index=0, phase="Failed")
    leaving = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    cluster.pod("leaving", 3, node="n", index=0, metadata=leaving)
    assert _row(run("inspect", on=cluster).out)[2] == "3/15"


def test_rows_are_in_the_order_of_gpus(run: Run, cluster: FakeCluster) -> None:
    """The original walks GPUs; a pod on several is listed once, pending ones come last."""
    both = {"scheduler.framework.gpushare.allocation": json.dumps({"0": {"0": 2, "1": 2}})}
    cluster.node("n", total=30, count=2)
    cluster.pod("a", 3, node="n").pod("b", 3, node="n", index=1)
    cluster.pod("c", 4, node="n", annotations=both).pod("d", 3, node="n", index=0)
    lines = run("inspect", "-d", on=cluster).out.splitlines()
    assert [line.split()[0] for line in lines[5:9]] == ["c", "d", "b", "a"]


@pytest.mark.parametrize("details", [(), ("-d",)])
def test_the_line_is_as_long_as_the_bytes_of_a_row(
    run: Run, cluster: FakeCluster, details: tuple[str, ...]
) -> None:
    """A name in Chinese characters takes three bytes each, and the dashes count bytes."""
    cluster.node("节点一", total=15).pod("模型", 3, node="节点一", index=0)
    line = next(x for x in run("inspect", *details, on=cluster).out.splitlines() if "---" in x)
    row = "模型\tdefault\t3\t\n" if details else "节点一\tunknown\t3/15\t3/15\n"
    assert len(line) == len(row.encode()) + (10 if details else 20)


def _row(text: str) -> list[str]:
    return text.splitlines()[1].split()
