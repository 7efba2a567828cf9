"""Every page that is marked to run offline does what it shows."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from guides.blocks import Guide, GuideTarget, found
from guides.session import GuideSession

DOCS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "guide", found(DOCS, GuideTarget.OFFLINE), ids=lambda guide: guide.path.stem
)
def test_a_page_does_what_it_shows(guide: Guide, tmp_path: Path) -> None:
    """Its commands run beside the files of docs/examples, with no cluster to be found."""
    folder = tmp_path / "terminal"
    shutil.copytree(DOCS / "examples", folder)
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    nowhere = {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    environment = {**os.environ, **nowhere, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
    GuideSession(folder, environment=environment).follow(guide)


@pytest.mark.parametrize("place", GuideTarget)
def test_there_are_pages_to_run(place: GuideTarget) -> None:
    """A changed marker must not leave the other tests with nothing to do."""
    assert found(DOCS, place)
