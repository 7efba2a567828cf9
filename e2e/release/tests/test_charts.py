"""Chart packages: what Helm reads in them, and that they are the same again."""

import os
from pathlib import Path

import helm_python as helm
import pytest

from host.errors import SetupError
from release import charts
from release.tests.smallrepository import EPOCH

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["gpushare", "gpu-serving"])
def test_helm_reads_the_version_of_the_release(tmp_path: Path, name: str) -> None:
    """Version and appVersion, which is the tag of the images."""
    path = charts.package(ROOT / "helm" / name, "7.8.9-rc.1", EPOCH, tmp_path)
    assert path.name == f"{name}-7.8.9-rc.1.tgz"
    with helm.Chart.load_archive(path.read_bytes()) as chart:
        found = chart.metadata
    assert (found["version"], found["appVersion"]) == ("7.8.9-rc.1", "7.8.9-rc.1")


def test_a_chart_that_is_packaged_again_is_the_same_file(repository: Path, tmp_path: Path) -> None:
    """Times and modes of the checkout do not matter, and files that git does not know stay out."""
    chart = repository / "helm" / "gpushare"
    one = charts.package(chart, "0.2.0", EPOCH, tmp_path).read_bytes()
    (chart / "secret.key").write_text("x")
    (chart / "Chart.yaml").chmod(0o600)
    os.utime(chart / "Chart.yaml", (1, 1))
    again = charts.package(chart, "0.2.0", EPOCH, tmp_path)
    assert again.read_bytes() == one
    assert again.stat().st_mtime == EPOCH


def test_a_chart_without_app_version_is_refused() -> None:
    """Its images would have no tag."""
    with pytest.raises(SetupError, match="one line with version and one with appVersion"):
        charts.with_version("name: a\nversion: 1\n", "0.2.0")
