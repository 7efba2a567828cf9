"""The build of Kubernetes stamps its version and finds what needs OpenAPI definitions."""

from pathlib import Path

from cluster import componentimages, kubernetes


def test_the_version_is_stamped_in_both_places_kubernetes_reads() -> None:
    """Kubeadm reads component-base, clients read client-go; both must say the same."""
    flags = kubernetes.ldflags().split()
    for package in ("component-base/version", "client-go/pkg/version"):
        prefix = f"k8s.io/kubernetes/vendor/k8s.io/{package}"
        assert f"{prefix}.gitVersion=v{kubernetes.VERSION}" in flags
        assert f"{prefix}.gitMinor=20" in flags


def test_only_tagged_packages_outside_samples_and_tests_are_generated(tmp_path: Path) -> None:
    """Staging packages get their vendor import path; untagged, test and sample files none."""
    tag = "// +k8s:openapi-gen=true\npackage x\n"
    staging = "staging/src/k8s.io"
    for name, text in {
        f"{staging}/api/core/v1/doc.go": tag,
        f"{staging}/api/core/v1/types.go": tag,
        f"{staging}/api/core/v2/doc.go": "package x\n",
        f"{staging}/api/core/v3/doc_test.go": tag,
        f"{staging}/sample-apiserver/pkg/doc.go": tag,
        "pkg/apis/abac/v0/doc.go": f"  {tag}",
        "cmd/other/doc.go": tag,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert kubernetes.openapi_packages(tmp_path) == [
        "k8s.io/kubernetes/pkg/apis/abac/v0",
        "k8s.io/kubernetes/vendor/k8s.io/api/core/v1",
    ]


def test_component_images_carry_the_names_kubeadm_asks_for() -> None:
    """`kubeadm config images list` of 1.20.2 without CoreDNS, which is not packaged."""
    assert {component.image for component in componentimages.COMPONENTS} == {
        "k8s.gcr.io/kube-apiserver:v1.20.2",
        "k8s.gcr.io/kube-controller-manager:v1.20.2",
        "k8s.gcr.io/kube-scheduler:v1.20.2",
        "k8s.gcr.io/kube-proxy:v1.20.2",
        "k8s.gcr.io/pause:3.2",
        "k8s.gcr.io/etcd:3.4.13-0",
    }


def test_only_programs_that_need_a_system_get_one() -> None:
    """Static programs stand alone; etcd and kube-proxy stand on the given base."""
    bases = {
        component.programs[0]: componentimages.dockerfile(component, "debian:x").split()[1]
        for component in componentimages.COMPONENTS
    }
    assert bases.pop("etcd") == bases.pop("kube-proxy") == "debian:x"
    assert set(bases.values()) == {"scratch"}
