"""Names as ``-o name`` prints them, and as people type them, are taken by every command."""

from pathlib import Path

import pytest
from drawncluster import FakeCluster
from invoking import POD, Run


@pytest.fixture
def waiting(cluster: FakeCluster) -> FakeCluster:
    """One node, and a pod that is too large for it."""
    return cluster.node("gpu-a", total=15).pod("web-0", 20)


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "node/gpu-a"),
        ("gpu", "node/gpu-a"),
        ("top", "node", "node/gpu-a"),
        ("top", "gpu", "node/gpu-a"),
        ("topology", "show", "node/gpu-a"),
        ("node-template", "node/gpu-a"),
        ("whatif", "-f", "pod.yaml", "--add-nodes", "1", "--like", "node/gpu-a"),
    ],
)
def test_nodes(
    run: Run,
    waiting: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    """``node/NAME`` is the node NAME, wherever a node is named."""
    (tmp_path / "pod.yaml").write_text(POD)
    monkeypatch.chdir(tmp_path)
    outcome = run(*words, on=waiting)
    assert outcome.code == 0
    assert "gpu-a" in outcome.out or words[0] == "node-template"


def test_namespaces(run: Run, waiting: FakeCluster) -> None:
    """``-n`` takes what ``usage -o name`` prints."""
    (line,) = run("usage", "-A", "-o", "name", on=waiting).out.split()
    assert line == "namespace/default"
    assert "web-0" in run("pending", "-n", line, on=waiting).out


def test_pods(run: Run, waiting: FakeCluster) -> None:
    """``explain`` takes what ``pending -o name`` prints, with and without the kind before it."""
    (line,) = run("pending", "-o", "name", on=waiting).out.split()
    assert line == "pod/web-0"
    for words in ((line,), ("pod", line), ("po", line), ("pod", "default/web-0")):
        assert run("explain", *words, on=waiting).out.startswith("Pod:        default/web-0\n")


def test_workloads(run: Run, waiting: FakeCluster) -> None:
    """A kind before a kind is that kind, not a namespace of its name."""
    outcome = run("explain", "deployment", "deploy/web", on=waiting)
    assert 'deployment "web" found in namespace "default"' in outcome.err


@pytest.mark.parametrize("typed", ["web-0", "default/web-0"])
def test_a_pod_without_its_kind(run: Run, waiting: FakeCluster, typed: str) -> None:
    """``explain NAME`` is answered with what to type."""
    outcome = run("explain", typed, on=waiting)
    assert outcome.code == 2
    assert f"for a pod, type gpushare explain pod {typed}\n" in outcome.err
    assert run("explain", "pod", typed, on=waiting).code == 0
