"""The report of ``gpushare verify``: JSON for everybody to see, and JUnit for a CI system.

The document has no names of nodes, pods and namespaces and no UUIDs of GPUs.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from xml.sax.saxutils import quoteattr

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.terminal.output import plain
from gpuinspect.verify.rows import RowOutcome
from gpuinspect.verify.run import VerifyRun
from gpuinspect.verify.targets import ProofTarget
from gpuprobe.checks.verdicts import ROWS, Proof, ProofVerdict

_UUID: Final = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POD: Final = re.compile(r"\bpod [a-z]+-[0-9]+\b")


class ProofDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One row; ``verdict`` is pass, fail, known or skip, ``figures`` have units in their names."""

    row: str
    title: str
    verdict: str
    expected: str
    seen: str
    next_step: str
    figures: Mapping[str, bool | int | float | str]


class VerifiedGpu(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU; ``node`` is a number, so that GPUs of one node can be recognized."""

    node: int
    gpu: int
    model: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    driver: str
    cuda: str
    capability: str
    mode: str
    rows: list[ProofDoc]


class VerifyReport(Document, frozen=True):
    """The answer of ``gpushare verify -o json``."""

    version: str
    kubernetes: str
    date: str
    holds: bool
    items: list[VerifiedGpu]


def verify_report(run: VerifyRun, *, version: str, kubernetes: str, date: str) -> VerifyReport:
    """The document of a run."""
    nodes: dict[str, int] = {}
    gpus: dict[str, list[RowOutcome]] = {}
    for each in run.outcomes:
        nodes.setdefault(each.target.node, len(nodes) + 1)
        gpus.setdefault(each.target.uuid, []).append(each)
    items = [
        _gpu(
            rows[0].target,
            nodes,
            run.described.get(uuid, {}),
            [_proof(each.proof, nodes) for each in rows],
        )
        for uuid, rows in gpus.items()
    ]
    return VerifyReport(
        api_version=API_VERSION,
        kind="VerifyReport",
        version=version,
        kubernetes=kubernetes,
        date=date,
        holds=holds(run),
        items=items,
    )


def holds(run: VerifyRun) -> bool:
    """No row failed."""
    return all(each.proof.verdict is not ProofVerdict.FAIL for each in run.outcomes)


def _gpu(
    target: ProofTarget,
    nodes: Mapping[str, int],
    described: Mapping[str, object],
    rows: list[ProofDoc],
) -> VerifiedGpu:
    return VerifiedGpu(
        node=nodes[target.node],
        gpu=target.index,
        model=target.model,
        memory_mib=target.memory_mib,
        driver=target.driver,
        cuda=str(described.get("cuda", "")),
        capability=str(described.get("capability", "")),
        mode=target.mode,
        rows=rows,
    )


def _proof(proof: Proof, nodes: Iterable[str]) -> ProofDoc:
    return ProofDoc(
        row=proof.row,
        title=ROWS[proof.row],
        verdict=proof.verdict.value,
        expected=anonymous(proof.expected, nodes),
        seen=anonymous(proof.seen, nodes),
        next_step=proof.next_step,
        figures={name: _figure(value) for name, value in proof.figures.items()},
    )


def _figure(value: Any) -> bool | int | float | str:
    return round(value, 4) if isinstance(value, float) else value


def anonymous(text: str, nodes: Iterable[str]) -> str:
    """A sentence without names of nodes and pods and without UUIDs."""
    for node in sorted(nodes, key=len, reverse=True):
        text = text.replace(node, "<node>")
    return _POD.sub("a pod", _UUID.sub("<GPU>", text))


def junit(run: VerifyRun) -> str:
    """A test suite for each GPU, a test case for each row."""
    suites: dict[str, list[Proof]] = {}
    for each in run.outcomes:
        name = f"{each.target.node} GPU {each.target.index} {each.target.model}"
        suites.setdefault(name, []).append(each.proof)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for name, proofs in suites.items():
        failed = sum(proof.verdict is ProofVerdict.FAIL for proof in proofs)
        quiet = sum(proof.verdict is ProofVerdict.SKIP for proof in proofs)
        lines.append(
            f'  <testsuite name={_attribute(name)} tests="{len(proofs)}"'
            f' failures="{failed}" skipped="{quiet}">'
        )
        lines += [_case(proof) for proof in proofs]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _case(proof: Proof) -> str:
    begin = f'    <testcase classname="gpushare.verify" name={_attribute(proof.row)}'
    words = f"expected {proof.expected}; seen {proof.seen}"
    if proof.verdict is ProofVerdict.FAIL:
        message = _attribute(f"{words}; next: {proof.next_step}")
        return f"{begin}><failure message={message}/></testcase>"
    if proof.verdict is ProofVerdict.SKIP:
        return f"{begin}><skipped message={_attribute(proof.seen)}/></testcase>"
    return f"{begin}/>"


def _attribute(text: str) -> str:
    """A quoted value: XML has no control characters, and any encoding of the output has ASCII."""
    return quoteattr(plain(text)).encode("ascii", "xmlcharrefreplace").decode()
