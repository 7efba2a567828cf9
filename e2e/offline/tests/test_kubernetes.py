"""The build of Kubernetes stamps its version and finds what needs OpenAPI definitions."""

from pathlib import Path

from offline import debiankubernetes, goprograms, kubernetes, release


def test_the_oldest_is_stamped_in_both_places_kubernetes_reads() -> None:
    """Kubeadm reads component-base, clients read client-go; both must say the same."""
    flags = debiankubernetes.ldflags().split()
    for package in ("component-base/version", "client-go/pkg/version"):
        prefix = f"k8s.io/kubernetes/vendor/k8s.io/{package}"
        assert f"{prefix}.gitVersion=v{debiankubernetes.VERSION}" in flags
        assert f"{prefix}.gitMinor=20" in flags


def test_a_version_from_modules_is_stamped_in_both_places() -> None:
    """The same two packages, as modules of their own."""
    stamps = kubernetes.stamps("1.37.1")
    for package in ("component-base/version", "client-go/pkg/version"):
        assert f"k8s.io/{package}.gitVersion=v1.37.1" in stamps
        assert f"k8s.io/{package}.gitMinor=37" in stamps


def test_every_part_of_the_pinned_kubernetes_has_its_version() -> None:
    """Parts that come from another release than the whole would not compile, or worse."""
    text = (goprograms.MODULES / "kubernetes/go.mod").read_text()
    part = release.NEWEST.replace("1.", "0.", 1)
    replaced = [line.split()[-1] for line in text.splitlines() if "=> k8s.io/" in line]
    assert len(replaced) > 25
    assert set(replaced) == {f"v{part}"}


def test_another_version_is_pinned_by_the_same_file() -> None:
    """The whole and its parts move together; what else is required is left to be found anew."""
    text = (goprograms.MODULES / "kubernetes/go.mod").read_text()
    other = kubernetes.repinned(text, "1.36.4")
    assert "require k8s.io/kubernetes v1.36.4\n" in other
    assert "k8s.io/api => k8s.io/api v0.36.4\n" in other
    assert release.NEWEST not in other
    assert "// indirect" not in other
    assert "k8s.io/kubernetes/cmd/kubelet" in other


def test_parts_that_only_another_version_has_are_pinned_too() -> None:
    """Kubernetes requires them as v0.0.0, which cannot be had; parts of both are pinned once."""
    text = (goprograms.MODULES / "kubernetes/go.mod").read_text()
    staging = "./staging/src/k8s.io"
    theirs = f"""
module k8s.io/kubernetes
require k8s.io/api v0.0.0
replace (
\tk8s.io/api => {staging}/api
\tk8s.io/legacy-cloud-providers => {staging}/legacy-cloud-providers
)
"""
    other = kubernetes.with_parts(kubernetes.repinned(text, "1.30.14"), theirs, "1.30.14")
    part = "k8s.io/legacy-cloud-providers"
    assert f"\nreplace {part} => {part} v0.30.14\n" in other
    assert other.count("k8s.io/api => ") == 1


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
    assert debiankubernetes.openapi_packages(tmp_path) == [
        "k8s.io/kubernetes/pkg/apis/abac/v0",
        "k8s.io/kubernetes/vendor/k8s.io/api/core/v1",
    ]
