"""The run of ``gpushare verify``: where its first objects are, and what ends it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from gpuinspect.verify.run import VerifySettings, _place, _rows
from gpuinspect.verify.site import OutOfTimeError
from gpuprobe.checks.verdicts import Proof, ended_early, skipped


def target(node: str, refusal: str = "") -> Any:
    """A GPU of a node, which may be refused."""
    return SimpleNamespace(node=node, refusal=refusal)


def test_the_place_of_a_run_is_on_a_node_with_a_gpu_to_verify() -> None:
    """Its image is that of this node's device plugin; a full node may have none."""
    snapshot: Any = None
    found = [target("full", "no free units"), target("free")]
    assert _place(snapshot, found, VerifySettings(rows=(), image="i")).node == "free"


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
