"""A kubelet and a containerd of an earlier version, from which a machine is upgraded in place.

They are compiled from the modules of the versions of today, with another version pinned. An entry
of the cache folder holds the finished programs alone.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from host import cachedir
from host.progress import step
from offline import goprograms, gotoolchain, kubernetes

KUBELET: Final = "1.36.3"
"""One minor version before the newest: what a kubelet is upgraded from."""
CONTAINERD: Final = "2.2.9"
_CONTAINERD_MODULE: Final = "github.com/containerd/containerd/v2"
_TIDY_SECONDS: Final = 600


def ensure_kubelet() -> Path:
    """The earlier kubelet, compiled if needed; minutes the first time. Raises SetupError."""
    text = kubernetes.repinned(_go_mod("kubernetes"), KUBELET)

    def fill(folder: Path) -> None:
        package, stamps = "k8s.io/kubernetes/cmd/kubelet", kubernetes.stamps(KUBELET)
        _compile("kubernetes", text, folder, packages=[package], stamps=stamps)

    return _entry(f"kubelet-{KUBELET}", text, fill) / "kubelet"


def ensure_containerd() -> Path:
    """The folder with the earlier containerd, its shim and ctr. Raises SetupError."""
    text = repinned(_go_mod("containerd"), _CONTAINERD_MODULE, CONTAINERD)

    def fill(folder: Path) -> None:
        _compile("containerd", text, folder, packages=goprograms.TOOLS)

    return _entry(f"containerd-{CONTAINERD}", text, fill)


def repinned(text: str, project: str, version: str) -> str:
    """The go.mod `text` with another version of a project; `go mod tidy` finds the rest anew."""
    text = re.sub(r"(?s)\nrequire \(.*?\n\)\n", "", text)
    return f"{text}\nrequire {project} v{version}\n"


def _go_mod(module: str) -> str:
    return (goprograms.MODULES / module / "go.mod").read_text(encoding="utf-8")


def _entry(kind: str, text: str, fill: Callable[[Path], None]) -> Path:
    key = cachedir.content_key([gotoolchain.VERSION, text])
    return cachedir.entry(kind, key, fill)


def _compile(
    module: str, text: str, folder: Path, *, packages: Sequence[str], stamps: Sequence[str] = ()
) -> None:
    work = folder / "work"
    shutil.copytree(goprograms.MODULES / module, work)
    (work / "go.mod").write_text(text, encoding="utf-8")
    with step(f"resolve the modules of {folder.name}"):
        goprograms.go(["mod", "tidy"], cwd=work, timeout_s=_TIDY_SECONDS)
    with step(f"compile {folder.name} (minutes)"):
        goprograms.compile_module(work, into=folder, packages=packages, stamps=stamps)
    shutil.rmtree(work)
