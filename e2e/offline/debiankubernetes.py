"""Kubernetes 1.20.2, built from Debian's source package with the Go of its time.

Debian bookworm holds the last whole Kubernetes tree (1.20.2); Go 1.18 and later cannot run it. The
result also holds Debian's etcd, so that a control plane runs as plain processes. About four
minutes on two cores; only the finished programs are kept.
"""

import os
import re
import shutil
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.progress import step
from offline import packages

VERSION = "1.20.2"
PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubeadm",
    "kubectl",
)
_SUITE = "bookworm"
_GO = "1.15"
_GO_SUITE = "bullseye"
_TREE = "k8s.io/kubernetes"
_STAMPED = ("component-base/version", "client-go/pkg/version")
_OPENAPI = f"{_TREE}/pkg/generated/openapi"
_KIND_SUITE = "trixie"


def ensure() -> Path:
    """The folder with the programs of PROGRAMS, `pause`, `etcd` and `etcdctl`; built if needed."""
    return cachedir.entry(f"kubernetes-{VERSION}", key(), _fill) / "bin"


def key() -> str:
    """Changes with everything that the programs are made of."""
    return cachedir.content_key([cachedir.code(Path(__file__))])


def base_files(into: Path) -> None:
    """Copy the base files of the kind that fits, 0.27, to the folder `into`."""
    source = into.with_name(f"{into.name}-kind")
    try:
        packages.unpack_source("kind", suite=_KIND_SUITE, into=source)
        shutil.copytree(source / "images/base/files", into)
    finally:
        shutil.rmtree(source, ignore_errors=True)


def _fill(folder: Path) -> None:
    target, work = folder / "bin", folder / "work"
    target.mkdir()
    work.mkdir()
    _fetch_etcd(work, target)
    _build(work, target)
    shutil.rmtree(work)


def _fetch_etcd(work: Path, target: Path) -> None:
    with step("fetch etcd"):
        for package, program in (("etcd-server", "etcd"), ("etcd-client", "etcdctl")):
            packages.unpack(package, suite=_SUITE, into=work)
            shutil.copy2(work / "usr/bin" / program, target)


def _build(work: Path, target: Path) -> None:
    tree = work / "gopath/src" / _TREE
    go = work / f"go/usr/lib/go-{_GO}"
    with step(f"fetch Kubernetes {VERSION} and Go {_GO}"):
        packages.unpack_source("kubernetes", suite=_SUITE, into=tree)
        (work / "go").mkdir()
        for package in (f"golang-{_GO}-go", f"golang-{_GO}-src"):
            packages.unpack(package, suite=_GO_SUITE, into=work / "go")
    pause = tree / "build/pause/linux/pause.c"
    run_command(["gcc", "-Os", "-static", "-o", target / "pause", pause], timeout_s=60)
    env = _environment(work, go)
    with step("generate the API server's OpenAPI definitions"):
        _generate_openapi(work, tree, go, env)
    with step(f"compile Kubernetes {VERSION} (minutes)"):
        wanted = [f"{_TREE}/cmd/{program}" for program in PROGRAMS]
        build = [f"{go}/bin/go", "build", "-ldflags", ldflags(), "-o", f"{target}/", *wanted]
        run_command(build, timeout_s=3600, cwd=tree, env=env)


def ldflags() -> str:
    """Linker flags that name the version in both places where Kubernetes reads it.

    kubeadm refuses a program that does not know its version.
    """
    major, minor, _ = VERSION.split(".")
    values = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    stamps = [
        f"-X {_TREE}/vendor/k8s.io/{package}.{name}={value}"
        for package in _STAMPED
        for name, value in values.items()
    ]
    return " ".join(["-s", "-w", *stamps])


def _environment(work: Path, go: Path) -> dict[str, str]:
    return {
        "GOROOT": str(go),
        "GOPATH": str(work / "gopath"),
        "GOCACHE": str(work / "gocache"),
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
        # Settings of the machine's own Go are not for this old one, which knows fewer flags.
        "GOENV": "off",
        "GOFLAGS": "",
    }


def _generate_openapi(work: Path, tree: Path, go: Path, env: dict[str, str]) -> None:
    generator = work / "openapi-gen"
    source = f"{_TREE}/vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    run_command([go / "bin/go", "build", "-o", generator, source], timeout_s=600, cwd=tree, env=env)
    command: list[str | Path] = [
        generator,
        *("--go-header-file", os.devnull),
        *("--output-base", work / "gopath/src"),
        *("--output-package", _OPENAPI),
        *("--output-file-base", "zz_generated.openapi"),
        *("--report-filename", work / "violations"),
        *("--input-dirs", ",".join(openapi_packages(tree))),
    ]
    run_command(command, timeout_s=300, cwd=tree, env=env)


def openapi_packages(tree: Path) -> list[str]:
    """Import paths of all packages under `tree` whose files ask for OpenAPI definitions."""
    tagged = re.compile(r"^\s*//\s*\+k8s:openapi-gen=", re.MULTILINE)
    found = set()
    for top in ("staging/src/k8s.io", "pkg"):
        for file in (tree / top).rglob("*.go"):
            if _skipped(file) or not tagged.search(file.read_text(encoding="utf-8")):
                continue
            folder = file.parent.relative_to(tree).as_posix()
            found.add(f"{_TREE}/" + re.sub("^staging/src/", "vendor/", folder))
    return sorted(found)


def _skipped(file: Path) -> bool:
    apart = {"testdata", "code-generator", "sample-apiserver", "sample-controller"}
    return file.name.endswith("_test.go") or not apart.isdisjoint(file.parts)
