"""kind and kubectl come from PATH first; where kind cannot be had the error says what to do."""

from pathlib import Path

import pytest

from cluster import tools
from cluster.errors import ClusterError
from cluster.nodeimage import NodeImage
from cluster.tests.fakeprograms import FakePrograms

OFFICIAL = NodeImage("kindest/node:v1.32.2", built_here=False)


def test_what_is_on_path_is_used(programs: FakePrograms) -> None:
    """Nothing is run or installed when both programs are there."""
    programs.add("kind", "exit 1")
    programs.add("kubectl", "exit 1")
    found = tools.ensure(OFFICIAL)
    assert (found.kind, found.kubectl) == (programs.folder / "kind", programs.folder / "kubectl")
    assert programs.calls() == []


@pytest.mark.usefixtures("no_root")
def test_without_kind_and_root_the_error_names_kind(programs: FakePrograms) -> None:
    """A person without root is asked to put kind on PATH."""
    programs.add("sudo", "exit 1")
    with pytest.raises(ClusterError, match="kind is not on PATH and installing it needs root"):
        tools.kind()


@pytest.mark.usefixtures("cache")
def test_without_a_package_of_kind_the_cause_is_part_of_the_sentence(
    programs: FakePrograms, tmp_path: Path
) -> None:
    """As root, but where apt has nothing to offer, the error names both the wish and the cause."""
    programs.add("sudo", "exit 0")
    with pytest.raises(ClusterError, match=r"(?s)kind is not on PATH and its package.*apt-get"):
        tools.kind()
