"""The report of ``gpushare verify`` in every form, over results made up for tests."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml

from gpucore.units import GpuIndex, NodeName
from gpuinspect.commands.admin import verify as layout
from gpuinspect.documents.verify import anonymous, holds, junit, verify_report
from gpuinspect.verify.rows import RowOutcome
from gpuinspect.verify.run import VerifyRun
from gpuinspect.verify.targets import ProofTarget
from gpuprobe.checks import memory, starts
from gpuprobe.checks.verdicts import ended_early, skipped

FORMS = Path(__file__).parent / "golden" / "forms"
UUID = "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"
TARGET = ProofTarget(
    node=NodeName("gpu-a"),
    index=GpuIndex(0),
    uuid=UUID,
    model="Test GPU",
    mode="driver",
    driver="615.10",
    memory_mib=16384,
    unit_mib=1024,
    total=16,
    free=16,
    core_free=100,
    empty=True,
)
FILLED = {
    "allocated_mib": 4096,
    "reached_mib": 3700,
    "reported_total_mib": 4096,
    "refusal": "CUDA_ERROR_OUT_OF_MEMORY",
    "intact": True,
    "released": True,
}


@pytest.fixture
def made_up() -> VerifyRun:
    """One row of each verdict but known."""
    beyond = {**FILLED, "reached_mib": 6144, "refusal": ""}
    proofs = [
        memory.proof(beyond, "driver"),
        starts.proof(starts.figures([1.5, 2.0, 3.25])),
        skipped("compute", f"pod compute-1 of node gpu-a has no {UUID}"),
    ]
    described = {UUID: {"cuda": "13.4", "capability": "9.0"}}
    return VerifyRun(tuple(RowOutcome(TARGET, proof) for proof in proofs), described)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_document_is_the_golden_one(form: str, made_up: VerifyRun) -> None:
    """UPDATE_GOLDEN=1 writes it anew; it names nothing of the cluster."""
    report = verify_report(made_up, version="0.1.0", kubernetes="v1.36.2", date="2026-01-02")
    text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
    if form == "yaml":
        text = yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False)
    path = FORMS / f"verify.{form}"
    if "UPDATE_GOLDEN" in os.environ:
        path.write_text(text)
    assert path.read_text() == text
    assert not any(word in text for word in ("gpu-a", UUID, "compute-1"))


def test_a_failed_row_means_that_it_does_not_hold(made_up: VerifyRun) -> None:
    """Skipped rows say nothing."""
    assert not holds(made_up)
    assert holds(VerifyRun(made_up.outcomes[1:]))
    assert json.loads((FORMS / "verify.json").read_text())["holds"] is False


def test_the_table_has_more_below_for_what_failed(made_up: VerifyRun) -> None:
    """Expected, seen and next step; rows that hold have one line."""
    assert layout.table(made_up).splitlines()[1].endswith("2048 MiB beyond its share")
    text = layout.failures(made_up, width=None)
    assert text.splitlines() == [
        "FAIL  memory on gpu-a GPU 0: the memory limit holds for one process",
        "      expected: out of memory at 4096 MiB, the CUDA context included, by the driver",
        "      seen: no refusal: it holds 6144 MiB, 2048 MiB beyond its share",
        "      do: read the events GpuLimitNotInForce of the pod and the node (docs/isolation.md)",
    ]
    assert layout.count(made_up) == "3 rows: 1 pass, 1 fail, 1 skip\n"


def test_junit_escapes_what_it_quotes(made_up: VerifyRun) -> None:
    """A sentence may have any character."""
    assert 'failures="1" skipped="1"' in junit(made_up)
    odd = RowOutcome(TARGET, skipped("burst", 'a "quote" & <tag>'))
    assert '"quote" &amp; &lt;tag&gt;' in junit(VerifyRun((odd,)))


def test_junit_is_xml_in_any_encoding(made_up: VerifyRun) -> None:
    """Messages of containers may have control characters, which no XML can have."""
    words = "exit 1: \x1b[31mno\x00 GPU\ufffe é"
    found = junit(VerifyRun((*made_up.outcomes, RowOutcome(TARGET, ended_early("burst", words)))))
    assert found.isascii()
    message = ET.fromstring(found)[0][-1][0].get("message")
    assert "exit 1:  [31mno  GPU  é" in str(message)


def test_names_of_the_cluster_are_replaced() -> None:
    """The longest name first: one may begin with another."""
    words = "pod share-1 on node gpu-a-2 and gpu-a"
    assert anonymous(words, ["gpu-a", "gpu-a-2"]) == "a pod on node <node> and <node>"
