"""The page and its plots, over figures made up for tests."""

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema  # type: ignore[import-untyped]
import pytest

from hardware import bench, plot, report, reports
from hardware.plot import PlotPoint

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SCHEMA = ROOT / "services" / "inspect" / "schema" / "gpushare-v1.json"
EXAMPLE = ROOT / "services" / "inspect" / "tests" / "golden" / "forms" / "verify.json"
RUNS = [1.0, 2.0, 3.0]


def _mode(rate: float) -> dict[str, Any]:
    served = {"requests_per_s": [rate] * 3, "slowest_client_per_s": RUNS, "p50_ms": RUNS}
    return {str(count): served | {"p99_ms": RUNS} for count in bench.COUNTS}


def _filled(refusal: str) -> dict[str, Any]:
    return {
        "allocated_mib": 4096,
        "reached_mib": 3600,
        "reported_total_mib": 16000,
        "refusal": refusal,
        "neighbour_intact": True,
    }


@pytest.fixture
def figures() -> dict[str, Any]:
    """Figures of a GPU that does not exist."""
    fault = dict.fromkeys(
        ["offender", "neighbour", "neighbour_afterwards", "newcomer", "after_all_left"], "fine"
    )
    shares = {"unit_mib": 1024, "small": _filled("CUDA_ERROR_OUT_OF_MEMORY"), "large": _filled("")}
    full = {"tflops": RUNS, "gb_per_s": RUNS, "requests_per_s": RUNS}
    seen = {"held_mib": 1024, "listed_mib": None, "others_listed": 1, "metric_mib": 1100}
    return {
        "machine": {"GPU": "Test GPU <1>, 16000 MiB", "MPS": "yes"},
        "memory": {"slicing": shares, "mps": shares},
        "alone": {"slicing": full, "mps": full},
        "crowds": {"slicing": _mode(100), "mps": _mode(250)},
        "threads": {str(percent): full for percent in bench.PERCENTS},
        "attribution": {"mps": seen},
        "crash": {"mps": {"fault": fault, "killed": fault}},
    }


def test_the_page_in_docs_is_the_one_that_is_written() -> None:
    """docs/isolation.md follows from the figures beside it, and states where there are none."""
    beside = DOCS / "isolation" / "figures.json"
    found = json.loads(beside.read_text()) if beside.exists() else None
    if "UPDATE_GOLDEN" in os.environ:
        (DOCS / "isolation.md").write_text(report.page(found, reports.read()))
    assert (DOCS / "isolation.md").read_text() == report.page(found, reports.read())


def test_every_report_keeps_the_schema() -> None:
    """Those that operators sent, and the example that tests of the command write."""
    schema = json.loads(SCHEMA.read_text())
    for path in [EXAMPLE, *sorted(reports.FOLDER.glob("*.json"))]:
        document = json.loads(path.read_text())
        jsonschema.validate(document, schema)
        assert document["kind"] == "VerifyReport"


def test_a_report_renders_as_a_column() -> None:
    """Verdict and figure of each row; what was skipped or is missing was not measured."""
    text = reports.table(json.loads(EXAMPLE.read_text())["items"])
    assert "Test GPU, driver 615.10, mode driver |" in text.splitlines()[0]
    rows = {line.split(" | ")[0].strip("| `"): line for line in text.splitlines()[2:]}
    assert rows["memory"].endswith("| **does not hold**: 6144 of 4096 MiB |")
    assert rows["start"].endswith("| holds: p50 2.0 s, p99 3.25 s |")
    assert rows["compute"].endswith(f"| {reports.NOT_MEASURED} |")
    assert rows["share"].endswith(f"| {reports.NOT_MEASURED} |")


def test_without_a_report_nothing_was_measured() -> None:
    """Every row states it."""
    lines = reports.table([]).splitlines()[2:]
    assert all(line.endswith(f"| {reports.NOT_MEASURED} |") for line in lines)


def test_without_figures_there_is_no_number() -> None:
    """The page before the first run names no GPU and shows no result."""
    page = report.page(None)
    assert "No figures yet" in page
    assert "TFLOP" not in page
    assert "GB/s" not in page


def test_every_part_has_its_table(figures: dict[str, Any]) -> None:
    """The page has a section for each question that was answered, with the hardware's name."""
    page = report.page(figures)
    for title in ("The machine", "Memory limits", "Thread percentage", "Several clients"):
        assert f"## {title}\n" in page
    for title in ("One client alone", "Whose memory it is", "What a crash takes along"):
        assert f"## {title}\n" in page
    assert "Test GPU <1>" in page
    assert "| 7 | MPS | 250 (250 to 250) |" in page
    assert "No figures yet" not in page


def test_what_was_not_measured_has_no_section(figures: dict[str, Any]) -> None:
    """Without MPS the page has the other sections, and no empty table."""
    del figures["threads"], figures["attribution"], figures["alone"]["mps"]
    page = report.page(figures)
    assert "Thread percentage" not in page
    assert "Whose memory it is" not in page
    assert "| TFLOP/s | 2 (1 to 3) | - | - |" in page


def test_all_is_written_side_by_side(figures: dict[str, Any], tmp_path: Path) -> None:
    """Page, plots and figures are written together, and every picture of the page exists."""
    bench.write(figures, tmp_path, {})
    page = (tmp_path / "isolation.md").read_text()
    links = [part.split(")")[0] for part in page.split("](")[1:]]
    pictures = [link for link in links if link.endswith(".svg")]
    assert pictures == ["isolation/threads.svg", "isolation/crowds.svg"]
    for picture in pictures:
        ET.parse(tmp_path / picture)
    assert json.loads((tmp_path / "isolation" / "figures.json").read_text()) == figures


def test_a_plot_shows_every_point() -> None:
    """Each series has a mark a point and its name, and values rise towards the top."""
    series = {"a & b": [PlotPoint(1, 1, 2, 3), PlotPoint(7, 8, 9, 10)]}
    picture = ET.fromstring(plot.lines("t", "across", "up", series))
    marks = picture.findall("{*}circle")
    assert len(marks) == 2
    assert float(marks[0].attrib["cy"]) > float(marks[1].attrib["cy"])
    assert float(marks[0].attrib["cx"]) < float(marks[1].attrib["cx"])
    assert "a & b" in [text.text for text in picture.findall("{*}text")]
