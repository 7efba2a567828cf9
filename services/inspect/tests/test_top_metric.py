"""``gpushare top node --metric``: what GPUs do now, from Prometheus."""

import json

import pytest
from drawncluster import FakeCluster, Gpu
from fakeprometheus import serving
from invoking import Run

from gpuinspect.sources.prometheus import POD_USED_BYTES, USED_BYTES, UTILIZATION

GIB = 1 << 30
FIRST, SECOND = "GPU-n-0", "GPU-n-1"
FIGURES = {
    USED_BYTES: {FIRST: str(GIB * 5 // 2), SECOND: "NaN", "GPU-elsewhere": "7"},
    UTILIZATION: {FIRST: "37.5"},
}


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 15 GiB; 4 units of the first are allocated. And a node without GPUs."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)]).pod("p", 4, node="n", index=0)
    return cluster.node("zcpu", resources={"cpu": "4"})


def test_gpus_have_arenas_columns(run: Run, cluster: FakeCluster) -> None:
    """Memory in total, allocated and used, and utilization; unknown figures are dashes."""
    with serving(FIGURES) as url:
        lines = run("top", "node", "--metric", "--prometheus", url, on=cluster).out.splitlines()
    start = lines.index("GPUs:")
    assert lines[start + 1].split() == [
        "INDEX",
        "MEMORY(Total)",
        "MEMORY(Allocated)",
        "MEMORY(Used)",
        "DUTY_CYCLE",
    ]
    assert lines[start + 3].split() == ["0", "15.0", "GiB", "4.0", "GiB", "2.5", "GiB", "37.5%"]
    assert lines[start + 4].split() == ["1", "15.0", "GiB", "0.0", "GiB", "-", "-"]
    assert [line.split() for line in lines[start + 5 : start + 8]] == [
        ["Total", "GPU", "Memory:", "30.0", "GiB"],
        ["Allocated", "GPU", "Memory:", "4.0", "GiB"],
        ["Used", "GPU", "Memory:", "2.5", "GiB"],
    ]
    assert lines.count("GPUs:") == 1


def test_each_pod_has_its_memory_in_use(run: Run, cluster: FakeCluster) -> None:
    """The driver's figure where it limits memory; a pod without a figure has a dash or none."""
    cluster.pod("q", 2, node="n", index=1)
    with serving({**FIGURES, POD_USED_BYTES: {"default/p": str(GIB * 3 // 2)}}) as url:
        flags = ("top", "node", "n", "--metric", "--prometheus", url)
        lines = run(*flags, on=cluster).out.splitlines()
        pods = json.loads(run(*flags, "-o", "json", on=cluster).out)["items"][0]["pods"]
    start = next(number for number, line in enumerate(lines) if line.startswith("NAMESPACE"))
    assert [line.split() for line in lines[start : start + 3]] == [
        ["NAMESPACE", "NAME", "GPU", "REQUESTS", "MEMORY(Used)"],
        ["default", "p", "0.27", "1.5", "GiB"],
        ["default", "q", "0.13", "-"],
    ]
    assert [pod.get("usedBytes") for pod in pods] == [GIB * 3 // 2, None]


def test_an_exclusive_gpu_is_allocated_in_full(run: Run, cluster: FakeCluster) -> None:
    """A pod with exclusive GPUs has all of their memory."""
    whole = {"aliyun.com/gpu": "1"}
    cluster.pod("w", node="n", limits=whole, annotations={"ALIYUN_COM_GPU_GROUP": "1"})
    with serving(FIGURES) as url:
        out = run("top", "node", "n", "--metric", "--prometheus", url, on=cluster).out
    row = next(line.split() for line in out.splitlines() if line.startswith("  1  "))
    assert row[3] == "15.0"


def test_documents_have_bytes(
    run: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address may come from the environment; JSON has bytes, percent, and null."""
    with serving(FIGURES) as url:
        monkeypatch.setenv("GPUSHARE_PROMETHEUS", url + "/")
        first, second = json.loads(
            run("top", "node", "n", "--metric", "-o", "json", on=cluster).out
        )["items"][0]["gpus"]
    assert first == {
        "index": 0,
        "uuid": FIRST,
        "totalBytes": 15 * GIB,
        "allocatedBytes": 4 * GIB,
        "usedBytes": GIB * 5 // 2,
        "utilizationPercent": 37.5,
    }
    assert (second["usedBytes"], second["utilizationPercent"]) == (None, None)
    plain = json.loads(run("top", "node", "n", "-o", "json", on=cluster).out)
    assert "gpus" not in plain["items"][0]


def test_an_address_is_needed(run: Run, cluster: FakeCluster) -> None:
    """Without one the command states how to give it."""
    outcome = run("top", "node", "--metric", on=cluster)
    assert outcome.code == 1
    assert "--prometheus URL or set GPUSHARE_PROMETHEUS" in " ".join(outcome.err.split())


def test_a_port_where_nobody_listens(run: Run, cluster: FakeCluster) -> None:
    """The error names the address."""
    with serving({}) as url:
        pass
    outcome = run("top", "node", "--metric", "--prometheus", url, on=cluster)
    assert outcome.code == 1
    assert f"Prometheus at {url} does not respond" in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (503, "starting", "answers 503: starting"),
        (404, "no such page", "answers 404: no such page"),
        (302, "elsewhere", "answers 302: elsewhere"),
        (200, "<html>", "is not a Prometheus server"),
        (200, '{"status": "success"}', "is not a Prometheus server"),
    ],
)
def test_an_address_of_something_else(
    run: Run, cluster: FakeCluster, status: int, body: str, sentence: str
) -> None:
    """Whatever else answers is an error in one sentence."""
    with serving({}, status=status, body=body) as url:
        outcome = run("top", "node", "--metric", "--prometheus", url, on=cluster)
    assert outcome.code == 1
    assert sentence in " ".join(outcome.err.split())


@pytest.mark.parametrize("address", ["localhost:9090", "ftp://localhost", "http://[", "http://"])
def test_what_is_no_address(run: Run, cluster: FakeCluster, address: str) -> None:
    """A text that is no URL of a web server is an error in one sentence."""
    outcome = run("top", "node", "--metric", "--prometheus", address, on=cluster)
    assert (outcome.code, outcome.err.startswith("error: ")) == (1, True)


def test_shares_have_no_metrics(run: Run, cluster: FakeCluster) -> None:
    """``-s`` counts units; together with ``--metric`` it is a mistake of the command line."""
    outcome = run("top", "node", "-s", "--metric", "--prometheus", "http://x", on=cluster)
    assert (outcome.code, "cannot be combined" in outcome.err) == (2, True)
