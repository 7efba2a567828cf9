"""The run of ``gpushare verify``: where its first objects are, and what ends it."""

from types import SimpleNamespace
from typing import Any

from gpuinspect.verify.run import VerifySettings, _place


def target(node: str, refusal: str = "") -> Any:
    """A GPU of a node, which may be refused."""
    return SimpleNamespace(node=node, refusal=refusal)


def test_the_place_of_a_run_is_on_a_node_with_a_gpu_to_verify() -> None:
    """Its image is that of this node's device plugin; a full node may have none."""
    snapshot: Any = None
    found = [target("full", "no free units"), target("free")]
    assert _place(snapshot, found, VerifySettings(rows=(), image="i")).node == "free"
