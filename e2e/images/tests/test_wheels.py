"""How wheels are fetched, built and pinned."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from images import build, catalogue, wheels
from images.base import Base

BASE = Base(name="b:1", id="sha256:1", python="3.12", glibc="2.36", machine="aarch64")


def test_fetching_is_checked_and_for_the_image() -> None:
    """Hashes are demanded, nothing is compiled here, and the target is the base image's Python."""
    command = wheels.download_command(Path("r.txt"), BASE, into=Path("w"))
    assert {"--require-hashes", "--only-binary=:all:", "--python-version=3.12"} <= set(command)
    assert "--platform=manylinux_2_36_aarch64" in command


def test_requirement_pins_the_very_file(tmp_path: Path) -> None:
    """The members' own wheels are installed by hash as well."""
    wheel = tmp_path / "a-1-py3-none-any.whl"
    wheel.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    assert build.members_file([wheel]) == f"./members/{wheel.name} --hash=sha256:{digest}\n"


@pytest.mark.slow
def test_members_wheel_is_built_without_a_network(tmp_path: Path) -> None:
    """The core's wheel holds the core, and two builds of it are equal byte for byte."""
    core = catalogue.ROOT / "libs" / "gpucore"
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (wheels.build(core, into=tmp_path / name) for name in ("one", "two"))
    assert "gpucore/model/__init__.py" in zipfile.ZipFile(one).namelist()
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_the_serving_chart_travels_in_the_commands_wheel(tmp_path: Path) -> None:
    """Every file of helm/gpu-serving is in it, byte for byte, through the package's link to it."""
    chart = catalogue.ROOT / "helm" / "gpu-serving"
    wheel = wheels.build(catalogue.ROOT / "services" / "inspect", into=tmp_path)
    with zipfile.ZipFile(wheel) as found:
        for file in (path for path in chart.rglob("*") if path.is_file()):
            name = f"gpuinspect/serving/chart/{file.relative_to(chart)}"
            assert found.read(name) == file.read_bytes()
