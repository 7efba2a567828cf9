"""The run of ``gpushare verify``: where its first objects are, and what ends it."""

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from verifyingserver import listed

from gpuinspect.cluster.snapshots import decode
from gpuinspect.verify.objects import guard, pod
from gpuinspect.verify.run import VerifyRun, VerifySettings, _on_all_nodes, _place, _rows
from gpuinspect.verify.site import OutOfTimeError
from gpukube.testing.plugin_pods import plugin_pod
from gpuprobe.checks.verdicts import Proof, ended_early, skipped


def target(node: str, refusal: str = "") -> Any:
    """A GPU of a node, which may be refused."""
    return SimpleNamespace(node=node, refusal=refusal)


def test_the_place_of_a_run_is_on_a_node_with_a_gpu_to_verify() -> None:
    """Its image is that of this node's device plugin; a full node may have none."""
    snapshot: Any = None
    found = [target("full", "no free units"), target("free")]
    assert _place(snapshot, found, VerifySettings(rows=(), image="i")).node == "free"


@pytest.mark.parametrize(
    ("namespace", "expected"), [("gpushare", ("registry",)), ("other", ()), ("", ())]
)
def test_pods_in_the_namespace_of_the_plugin_have_its_pull_secrets(
    namespace: str, expected: tuple[str, ...]
) -> None:
    """Kubernetes 1.35 and later give them no image that was pulled with these credentials."""
    plugin = plugin_pod("plugin", "n1")
    plugin["spec"]["containers"][0]["image"] = "registry.example.com/own"
    plugin["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    snapshot = decode(listed([plugin]).encode())
    place = _place(snapshot, [target("n1")], VerifySettings(rows=(), namespace=namespace))
    wanted = [{"name": name} for name in expected]
    job = guard(place)["spec"]["template"]["spec"]
    check = pod(place, "p", [], {}, seconds=1)["spec"]
    assert [each.get("imagePullSecrets", []) for each in (job, check)] == [wanted, wanted]


def test_a_run_out_of_time_names_the_rows_that_it_did_not_reach() -> None:
    """And these alone: those that it has keep their results."""
    done = ended_early("share", "why")

    def proofs(_: object) -> Iterator[Proof]:
        yield done
        raise OutOfTimeError("out of time")

    runner: Any = SimpleNamespace(target=target("n"), proofs=proofs)
    found = list(_rows(runner, ["share", "memory", "start"]))
    reason = "out of time: --timeout"
    assert found == [done, skipped("memory", reason), skipped("start", reason)]


def test_results_are_in_the_order_of_the_nodes() -> None:
    """Also where the last node is done first."""
    started, others = threading.Event(), list[threading.Thread]()

    def on_node(group: Sequence[Any]) -> VerifyRun:
        node = group[0].node
        if node == "b":
            others.append(threading.current_thread())
            started.set()
        else:
            assert started.wait(60)
            if others[0] is not threading.current_thread():
                others[0].join(60)
        return VerifyRun((), left=node)

    site: Any = None
    runs = _on_all_nodes(site, [target("a"), target("b")], on_node)
    assert [run.left for run in runs] == ["a", "b"]


def test_each_run_begins_with_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a time that is too short for all nodes would leave out the same ones every night."""
    monkeypatch.setattr("gpuinspect.verify.run.NODES_AT_ONCE", 1)
    nodes, first = [f"n{number}" for number in range(10)], set[str]()
    site: Any = None
    for _ in range(20):
        seen: list[str] = []

        def on_node(group: Sequence[Any], seen: list[str] = seen) -> VerifyRun:
            seen.append(group[0].node)
            return VerifyRun((), left=group[0].node)

        runs = _on_all_nodes(site, [target(each) for each in nodes], on_node)
        assert [run.left for run in runs] == nodes
        first.add(seen[0])
    assert len(first) > 1
