"""What the demo ends with, without a cluster; and that README shows the demo's own table."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from demo import __main__ as demo
from environments import machines
from environments.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
IMAGE = "gpushare/sample:abc"


class FakeWorld:
    """A cluster that answers every command with its words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = IMAGE
        self.tools = folder / "bin"
        self.nodes = {"worker": (), "worker2": ()}
        self.scripts: list[tuple[str, str]] = []
        self.kubectl = RecordingKubectl(folder / "kubeconfig")

    def on_node(self, node: str, script: str) -> str:
        self.scripts.append((node, script))
        return ""


class RecordingKubectl(SimpleNamespace):
    """Prints a table, and remembers what was applied and the commands."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig=kubeconfig, applied=[], commands=[])

    def __call__(self, *words: str) -> str:
        self.commands.append(words)
        return f"<{' '.join(words)}>\n"

    def apply(self, *objects: Any) -> None:
        self.applied += objects


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    """The commands of ``gpushare`` answer with their words too."""

    def run(argv: list[Any], **how: Any) -> str:
        assert how["env"]["KUBECONFIG"] == str(tmp_path / "kubeconfig")
        return f"<{' '.join(map(str, argv[1:]))}>\n"

    monkeypatch.setattr(demo, "run_command", run)
    return FakeWorld(tmp_path)


def test_it_ends_with_what_people_use(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table, why a pod waits, where another would go, and the address of the dashboard."""
    demo._show(world)
    printed = capsys.readouterr().out
    manifest = tmp_path / "notebook.yaml"
    parts = ("<inspect gpushare>", "<explain pod demo/large>", f"<whatif -f {manifest}>", "8080/")
    places = [printed.index(part) for part in parts]
    assert places == sorted(places)
    limits = yaml.safe_load(manifest.read_text())["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"aliyun.com/gpu-mem": "8"}


def test_one_sample_waits(world: Any) -> None:
    """It requests more than any GPU of the demo has, so that there is something to explain."""
    demo._samples(world)
    [large] = [item for item in world.kubectl.applied if item["metadata"]["name"] == "large"]
    [container] = large["spec"]["containers"]
    largest = max(gpu.units for name in demo.MACHINES for gpu in machines.gpus(name))
    assert int(container["resources"]["limits"]["aliyun.com/gpu-mem"]) > largest


def test_a_slow_machine_has_as_long_for_the_samples_as_for_anything_else(world: Any) -> None:
    """Pods start one after the other where a cluster was created just before."""
    demo._samples(world)
    waits = [words for words in world.kubectl.commands if words[:2] == ("rollout", "status")]
    assert [words[2] for words in waits] == [f"deployment/{name}" for name in demo.SAMPLES]
    assert {words[-1] for words in waits} == {f"--timeout={PATIENCE_SECONDS}s"}


def test_the_tutorials_image_is_on_every_node(world: Any) -> None:
    """Its pages name busybox, which a node need not fetch."""
    demo._load_pages_image(world)
    assert [node for node, _ in world.scripts] == ["worker", "worker2"]
    assert {script for _, script in world.scripts} == {
        f"ctr -n k8s.io images tag --force docker.io/{IMAGE} docker.io/library/busybox:1.36"
    }
    assert demo.PAGES_IMAGE.endswith("busybox:1.36")
    assert "image: busybox:1.36" in (ROOT / "docs" / "tutorial.md").read_text()


def test_readme_shows_the_demos_own_table() -> None:
    """Its nodes, their GPUs and the units in use are those of the demo's machines and samples."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(rf"^({demo.NAME}-worker\d*) +\S+ +(.*)$", text, re.MULTILINE)
    shown = [[tuple(map(int, cell.split("/"))) for cell in cells.split()] for _, cells in rows]
    for machine, cells in zip(demo.MACHINES, shown, strict=True):
        gpus = [gpu.units for gpu in machines.gpus(machine)]
        assert [total for _, total in cells[:-1] if total] == gpus
        assert cells[-1] == (sum(used for used, _ in cells[:-1]), sum(gpus))
    used = sum(units * count for units, count in demo.SAMPLES.values())
    assert sum(cells[-1][0] for cells in shown) == used
    assert f"{used}/{sum(cells[-1][1] for cells in shown)} (" in text
