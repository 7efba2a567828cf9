"""Images of the control plane are those that the version's kubeadm lists and that can be made."""

from pathlib import Path

from host.testing.fakeprograms import FakePrograms
from offline import componentimages
from offline.componentimages import Component

KUBEADM = """
for name in kube-apiserver:v1.37.1 kube-proxy:v1.37.1 coredns/coredns:v1.14.6 pause:3.10.2 \\
    etcd:3.7.0-0; do echo "registry.k8s.io/$name"; done
"""


def listed(programs: FakePrograms) -> list[Component]:
    programs.add("kubeadm", KUBEADM)
    for name in ("kube-apiserver", "kube-proxy", "pause", "etcd"):
        programs.add(name, "exit 1")
    return componentimages.components(programs.folder, "1.37.1")


def test_component_images_carry_the_names_kubeadm_requests(programs: FakePrograms) -> None:
    """What no program is there for, CoreDNS of an old version, has no image."""
    assert {component.image for component in listed(programs)} == {
        "registry.k8s.io/kube-apiserver:v1.37.1",
        "registry.k8s.io/kube-proxy:v1.37.1",
        "registry.k8s.io/pause:3.10.2",
        "registry.k8s.io/etcd:3.7.0-0",
    }
    expected = "kubeadm config images list --kubernetes-version=v1.37.1"
    assert programs.calls() == [expected]


def test_the_sandbox_image_is_kubeadms(programs: FakePrograms) -> None:
    """The runtime must start the pause image that the node holds."""
    listed(programs)
    assert componentimages.pause(programs.folder, "1.37.1") == "registry.k8s.io/pause:3.10.2"


def test_only_programs_that_need_a_system_get_one(programs: FakePrograms) -> None:
    """Static programs stand alone; etcd and kube-proxy stand on the given base."""
    bases = {
        component.programs[0]: componentimages.dockerfile(component, "debian:x").split()[1]
        for component in listed(programs)
    }
    assert bases.pop("etcd") == bases.pop("kube-proxy") == "debian:x"
    assert set(bases.values()) == {"scratch"}


def test_a_program_of_another_component_is_never_taken(
    programs: FakePrograms, tmp_path: Path
) -> None:
    """A folder without programs makes no image."""
    programs.add("kubeadm", KUBEADM)
    (tmp_path / "kubeadm").symlink_to(programs.folder / "kubeadm")
    assert componentimages.components(tmp_path, "1.37.1") == []
