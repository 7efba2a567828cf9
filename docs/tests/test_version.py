"""The version has one place, `VERSION` of gpucore; files that cannot read it are compared."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from gpucore import VERSION

ROOT = Path(__file__).parents[2]
MEMBERS = sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))
CHARTS = sorted(ROOT.glob("helm/*/Chart.yaml"))


@pytest.mark.parametrize("member", MEMBERS, ids=lambda path: path.name)
def test_every_package_reads_its_version_from_the_core(member: Path) -> None:
    """The project file has none of its own, and the installed package has that of the core."""
    project = tomllib.loads((member / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    source = member / project["tool"]["hatch"]["version"]["path"]
    assert source.resolve() == ROOT / "libs/gpucore/src/gpucore/__init__.py"
    assert version(project["project"]["name"]) == VERSION


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.parent.name)
def test_a_chart_has_the_version_of_the_packages(chart: Path) -> None:
    """Helm reads Chart.yaml only; its application version is the tag of the images."""
    found = yaml.safe_load(chart.read_text())
    assert (found["version"], found["appVersion"]) == (VERSION, VERSION)


def test_the_newest_heading_of_the_changelog_is_this_version() -> None:
    """Changes are entered under the version that will have them."""
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == VERSION


def test_no_other_source_spells_the_version() -> None:
    """A second place would keep the old number after a release."""
    sources = [
        path
        for folder in ("libs", "services", "e2e", "docs/generators")
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
    ]
    spelled = [path for path in sources if f'"{VERSION}"' in path.read_text()]
    assert spelled == [ROOT / "libs/gpucore/src/gpucore/__init__.py"]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.parent.name)
def test_a_chart_has_what_artifact_hub_shows(chart: Path) -> None:
    """Icon, category and license; the icon is in the chart, so it needs no web server."""
    found = yaml.safe_load(chart.read_text())
    assert found["icon"].startswith("data:image/svg+xml;base64,")
    assert found["annotations"]["artifacthub.io/category"] == "ai-machine-learning"
    assert found["annotations"]["artifacthub.io/license"] == "Apache-2.0"
