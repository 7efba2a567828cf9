"""The unhealthy GPUs of the cluster with their reasons."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from gpuinspect.queries.gpuhealth import UnhealthyGpu
from gpuinspect.queries.verified import VerifiedRow
from gpuinspect.web.frames import Frame
from gpuinspect.web.rendering import Cell, Link, Table, Timestamp, View, pod_link, table
from gpuprobe.checks.verdicts import ProofVerdict

SHOWN: Final = 200
"""Rows of a table of the page; more are counted."""


def health(frame: Frame) -> View:
    """The table of unhealthy GPUs, and the count of healthy ones."""
    found = frame.unhealthy
    gpus = sum(len(node.gpus) for node in frame.view.nodes)
    failed_first = sorted(frame.verified, key=lambda row: row.verdict != ProofVerdict.FAIL)
    values = {
        "unhealthy": unhealthy(found[:SHOWN]),
        "bad": len(found),
        "gpus": gpus,
        "verified": verified(failed_first[:SHOWN]),
        "proofs": len(frame.verified),
    }
    return View("health.html", values)


def verified(rows: Iterable[VerifiedRow]) -> Table:
    """The last results of ``gpushare verify``."""
    heads = ("Node", "GPU", "Row", "Result", "When")
    return table(heads, (_proof(each) for each in rows), caption="gpushare verify", stacks=True)


def _proof(found: VerifiedRow) -> list[Cell]:
    when = datetime.fromtimestamp(found.at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    link = Link(found.node, f"/nodes/{found.node}")
    return [link, f"GPU{found.gpu}", found.row, found.verdict, Timestamp(when)]


def unhealthy(found: Iterable[UnhealthyGpu]) -> Table:
    """The table of these GPUs."""
    heads = ("GPU", "Node", "Model", "Reason", "Since", "Pods on it")
    rows = ([*_gpu(each), _pods(each)] for each in found)
    return table(heads, rows, caption="Unhealthy GPUs", stacks=True)


def _gpu(found: UnhealthyGpu) -> list[Cell]:
    return [
        f"GPU{found.index} {found.uuid}".strip(),
        Link(found.node, f"/nodes/{found.node}"),
        found.model or "unknown",
        found.reason,
        Timestamp(found.since) if found.since else "unknown",
    ]


def _pods(found: UnhealthyGpu) -> Cell:
    """A link for one pod, else the number of pods."""
    if len(found.pods) == 1:
        return pod_link(*found.pods[0])
    return Link(f"{len(found.pods)} pods", f"/nodes/{found.node}") if found.pods else "none"
