"""Paths of a pod's cgroup: as kubelet writes them, for both drivers and every QoS class."""

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.node.isolation.attribution import pod_of
from gpucore.node.isolation.cgroups import pod_cgroups, pods_cgroups, systemd_path
from gpucore.units import PodUid

UID = PodUid("6f3c1a90-2b4d-4e8f-9a01-c2d3e4f5a6b7")
LOW = "6f3c1a90_2b4d_4e8f_9a01_c2d3e4f5a6b7"
UIDS = st.uuids().map(lambda uid: PodUid(str(uid)))
PARENTS = st.lists(st.text(string.ascii_lowercase + "-_", min_size=1), max_size=3).map(
    lambda names: "/" + "/".join(names)
)


def test_a_pod_is_where_kubelet_puts_it() -> None:
    """Guaranteed, burstable and best-effort pods, each by systemd and by cgroupfs."""
    assert pod_cgroups(UID) == (
        f"kubepods.slice/kubepods-pod{LOW}.slice",
        f"kubepods/pod{UID}",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice",
        f"kubepods/burstable/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice",
        f"kubepods/besteffort/pod{UID}",
    )


def test_kubelet_may_have_a_cgroup_root_of_its_own() -> None:
    """As kind sets it; the slices below repeat its name."""
    assert pods_cgroups("/kubelet") == (
        "kubelet.slice/kubelet-kubepods.slice",
        "kubelet/kubepods",
    )
    assert pod_cgroups(UID, "/kubelet")[:2] == (
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{LOW}.slice",
        f"kubelet/kubepods/pod{UID}",
    )
    assert pods_cgroups("/") == pods_cgroups("") == ("kubepods.slice", "kubepods")


@pytest.mark.parametrize("uid", ["", "..", "../x", "a/b", "a\x00b", "a b", "a.slice", "-a", "é"])
def test_a_uid_that_could_name_another_directory_has_no_cgroup(uid: str) -> None:
    """Nothing but letters, digits and single dashes between them."""
    assert pod_cgroups(PodUid(uid)) == ()


@given(UIDS, PARENTS)
def test_the_pod_of_a_path_is_the_pod_it_was_made_for(uid: PodUid, parent: str) -> None:
    """The path and the reader of a process's cgroup agree, and no two paths of a pod are one."""
    paths = pod_cgroups(uid, parent)
    assert [pod_of(f"0::/{path}/cri-0a1b.scope") for path in paths] == [uid] * 6
    assert len(set(paths)) == 6


@given(UIDS, UIDS)
def test_two_pods_share_no_path(one: PodUid, other: PodUid) -> None:
    """The limit of one pod is never set on another."""
    assert (one == other) is bool(set(pod_cgroups(one)) & set(pod_cgroups(other)))


@given(st.text(), PARENTS)
def test_whatever_a_uid_contains_its_paths_are_below_kubepods(uid: str, parent: str) -> None:
    """No uid leads out of the directory of the pods, and every path is one pod deep."""
    above = pods_cgroups(parent)
    for path in pod_cgroups(PodUid(uid), parent):
        assert path.startswith(tuple(f"{each}/" for each in above))
        assert ".." not in path.split("/")
        assert path.rsplit("/", 1)[1].count("pod") >= 1


@given(st.lists(st.text(string.ascii_lowercase + "-", min_size=1), min_size=1, max_size=4))
def test_a_slice_repeats_the_names_above_it(names: list[str]) -> None:
    """Systemd refuses a slice that does not begin with the name of its parent."""
    slices = systemd_path(names).split("/")
    assert len(slices) == len(names)
    for above, below in itertools.pairwise(slices):
        assert below.startswith(above.removesuffix(".slice") + "-")
