"""The benchmark of simulated weeks: one line of figures for each mix, load and policy."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import week

pytestmark = pytest.mark.slow

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,64000,262144,2,P100\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1024,1,460\np1,1000,1024,1,1000\n"


def test_every_case_has_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defragmentation too; the list without times takes those of the list ``default``."""
    (tmp_path / week.NODES).write_text(NODES)
    header, *rows = PODS.splitlines()
    lines = [f"{header},creation_time,deletion_time", *(f"{row},0,90000" for row in rows), ""]
    for mix in week.MIXES:
        timed = mix not in week.WITHOUT_TIMES
        (tmp_path / week.PODS.format(mix)).write_text("\n".join(lines) if timed else PODS)
    file = tmp_path / "week.json"
    given = ("--traces", str(tmp_path), "--output", str(file), "--every", "2", "--seeds", "1")
    monkeypatch.setattr(sys, "argv", ["week", *given])
    week.main()
    found = json.loads(file.read_text())
    cases = {(run["mix"], run["load"], run["policy"], run["defragmented"]) for run in found}
    assert len(found) == len(cases) == 3 * 2 * 4 + 6
    assert all(run["gpus"] == 2 and run["jobs"] > 0 for run in found)
    assert len(file.read_text().splitlines()) == len(found) + 2
