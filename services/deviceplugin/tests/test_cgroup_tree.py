"""Whether anything runs in the cgroup of a pod, and what is one."""

from pathlib import Path

import pytest

from gpucore.units import PodUid
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree

UID = PodUid("6f3c1a90-2b4d-4e8f-9a01-c2d3e4f5a6b7")


@pytest.mark.parametrize(
    ("events", "populated"),
    [
        ("populated 1\nfrozen 0\n", True),
        ("populated 0\nfrozen 0\n", False),
        ("frozen 0\npopulated 0\n", False),
        ("populated 01\n", True),
        ("", True),
    ],
)
def test_a_cgroup_is_empty_only_where_the_kernel_reports_it(
    tmp_path: Path, events: str, populated: bool
) -> None:
    """A limit that is taken off too early lets the pod take the memory of others."""
    (tmp_path / "cgroup.events").write_text(events)
    assert CgroupTree(tmp_path, "").populated(str(tmp_path)) is populated


def test_a_cgroup_that_is_gone_is_empty_and_one_that_cannot_be_read_is_not(tmp_path: Path) -> None:
    """Missing and unreadable are not the same."""
    tree = CgroupTree(tmp_path, "")
    assert not tree.populated(str(tmp_path / "gone"))
    (tmp_path / "cgroup.events").mkdir()
    assert tree.populated(str(tmp_path))


def test_a_file_is_no_cgroup(tmp_path: Path) -> None:
    """Only directories are."""
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "kubepods").mkdir()
    (tmp_path / "kubepods" / f"pod{UID}").touch()
    tree = CgroupTree(tmp_path, "")
    assert tree.pods() == str(tmp_path / "kubepods")
    assert tree.of_pod(UID) == ""
