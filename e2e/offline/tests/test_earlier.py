"""Earlier programs are pinned in a copy of today's module files."""

from offline import earlier, goprograms, release


def test_an_earlier_containerd_is_pinned_and_the_rest_is_found_anew() -> None:
    """The tools stay; what else is required belongs to the version of today."""
    text = (goprograms.MODULES / "containerd/go.mod").read_text()
    project = "github.com/containerd/containerd/v2"
    other = earlier.repinned(text, project, earlier.CONTAINERD)
    assert f"require {project} v{earlier.CONTAINERD}\n" in other
    assert "// indirect" not in other
    assert f"{project}/cmd/containerd-shim-runc-v2" in other
    assert goprograms.pinned("containerd", project) != earlier.CONTAINERD


def test_the_earlier_kubelet_is_one_minor_version_older() -> None:
    """What kubelet may be beside an API server of today, and is upgraded from."""
    earlier_minor, newest_minor = (
        int(version.split(".")[1]) for version in (earlier.KUBELET, release.NEWEST)
    )
    assert newest_minor - earlier_minor == 1
