"""The programs of a Kubernetes version, with the etcd, containerd and CoreDNS that fit it.

Version 1.20.2 comes from Debian's source package, any other from Go modules. An entry of the cache
folder holds the finished programs alone.
"""

import re
import shutil
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.progress import step
from offline import debiankubernetes, goprograms, gotoolchain, release

_KUBERNETES, _KIND = "k8s.io/kubernetes", "sigs.k8s.io/kind"
_PARTS = ("kubernetes", "etcd", "containerd", "coredns")
_PACKAGES = {"coredns": (".",)}
"""What to compile of a part whose go.mod names no tools."""
_STAMPED = ("component-base/version", "client-go/pkg/version")
_PAUSE = "build/pause/linux/pause.c"


def ensure(version: str) -> Path:
    """The folder with the programs of a version, compiled if needed; minutes the first time.

    It holds what :data:`debiankubernetes.PROGRAMS` names, `pause`, `etcd` and `etcdctl`; of
    another version than Debian's also `etcdutl`, `coredns` and containerd's three programs.
    """
    if version == release.OLDEST:
        return debiankubernetes.ensure()
    kind = f"kubernetes-{version}"
    return cachedir.entry(kind, key(version), lambda folder: _fill(folder, version)) / "bin"


def key(version: str) -> str:
    """Changes with everything that the programs of a version are made of."""
    if version == release.OLDEST:
        return debiankubernetes.key()
    files = [path for part in _PARTS for path in goprograms.inputs(part)]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return cachedir.content_key(
        [version, gotoolchain.VERSION, *texts, cachedir.code(Path(__file__))]
    )


def base_files(version: str, into: Path) -> None:
    """Copy kind's base files for nodes of a version to the folder `into`, which must not exist."""
    if version == release.OLDEST:
        debiankubernetes.base_files(into)
    else:
        source = goprograms.source(goprograms.MODULES / "kind", _KIND)
        shutil.copytree(source / "images/base/files", into)


def stamps(version: str) -> list[str]:
    """What the linker sets so that the programs know their version; kubeadm refuses one without."""
    major, minor, _ = version.split(".")
    values = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
    }
    return [
        f"k8s.io/{where}.{name}={value}" for where in _STAMPED for name, value in values.items()
    ]


def repinned(text: str, version: str) -> str:
    """The go.mod `text` of Kubernetes for another version; its parts follow as v0.minor.patch.

    Whatever else it requires belongs to the old version, and `go mod tidy` finds it anew.
    """
    parts = release.NEWEST.replace("1.", "0.", 1), version.replace("1.", "0.", 1)
    text = re.sub(r"(?s)\nrequire \(.*?\n\)\n", "", text)
    text = text.replace(f" v{parts[0]}\n", f" v{parts[1]}\n")
    return f"{text}\nrequire {_KUBERNETES} v{version}\n"


def with_parts(text: str, theirs: str, version: str) -> str:
    """The go.mod `text` with those parts too that a version has in its go.mod, `theirs`, alone.

    Kubernetes requires its parts as v0.0.0, which no proxy has.
    """
    parts = re.findall(r"(?m)^\s*(k8s\.io/\S+) => \./staging/", theirs)
    missing = [part for part in parts if f"\t{part} => " not in text]
    other = version.replace("1.", "0.", 1)
    return text + "".join(f"\nreplace {part} => {part} v{other}\n" for part in missing)


def _fill(folder: Path, version: str) -> None:
    target, work = folder / "bin", folder / "work"
    target.mkdir()
    work.mkdir()
    module = _module(version, work)
    pause = goprograms.source(module, _KUBERNETES) / _PAUSE
    run_command(["gcc", "-Os", "-static", "-o", target / "pause", pause], timeout_s=60)
    with step(f"compile Kubernetes {version} (minutes)"):
        goprograms.compile_module(module, into=target, stamps=stamps(version))
    for part in _PARTS[1:]:
        with step(f"compile {part}"):
            packages = _PACKAGES.get(part, goprograms.TOOLS)
            goprograms.compile_module(goprograms.MODULES / part, into=target, packages=packages)
    (target / "server").rename(target / "etcd")
    shutil.rmtree(work)


def _module(version: str, work: Path) -> Path:
    """The Go module that pins a version: ours, or a copy of it for another version."""
    ours = goprograms.MODULES / "kubernetes"
    if version == release.NEWEST:
        return ours
    other = Path(shutil.copytree(ours, work / "kubernetes"))
    with step(f"resolve the modules of Kubernetes {version}"):
        theirs = goprograms.go_mod(_KUBERNETES, version)
        text = repinned((ours / "go.mod").read_text(), version)
        (other / "go.mod").write_text(with_parts(text, theirs, version))
        goprograms.go(["mod", "tidy"], cwd=other, timeout_s=600)
    return other
