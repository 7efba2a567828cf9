"""Images of the control plane's parts, under the names kubeadm of this version expects.

Static programs need nothing else; kube-proxy needs the network tools and etcd the C library.
Tags are the ones kubeadm asks for, whatever version lies in them (Debian's etcd is newer).
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import cachedir, debianimage, docker, kubernetes
from cluster.progress import step

_REGISTRY = "k8s.gcr.io"
PAUSE = f"{_REGISTRY}/pause:3.2"
_NETWORK_TOOLS = "iptables conntrack kmod ipset"


@dataclass(frozen=True)
class Component:
    """One image: its name, the programs in it, and whether they need a system around them."""

    image: str
    programs: tuple[str, ...]
    static: bool = True


COMPONENTS = (
    *(
        Component(f"{_REGISTRY}/{name}:v{kubernetes.VERSION}", (name,))
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
    Component(f"{_REGISTRY}/kube-proxy:v{kubernetes.VERSION}", ("kube-proxy",), static=False),
    Component(f"{_REGISTRY}/etcd:3.4.13-0", ("etcd", "etcdctl"), static=False),
    Component(PAUSE, ("pause",)),
)


def ensure(programs: Path) -> list[str]:
    """Build every component image from the folder of programs; their names."""
    with step("build the control plane's images"):
        system = _system_image()
        for component in COMPONENTS:
            _build(component, programs, system)
    return [component.image for component in COMPONENTS]


def dockerfile(component: Component, system: str) -> str:
    """The text of a component's Dockerfile; `system` is the base of those that need one."""
    lines = [
        f"FROM {'scratch' if component.static else system}",
        "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "COPY programs/ /usr/local/bin/",
        f'ENTRYPOINT ["/usr/local/bin/{component.programs[0]}"]',
    ]
    return "\n".join([*lines, ""])


def _system_image() -> str:
    base = debianimage.ensure()
    text = (
        f"FROM {base}\n"
        "RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q "
        f"--no-install-recommends {_NETWORK_TOOLS} && rm -rf /var/lib/apt/lists/*\n"
    )
    tag = f"gpushare/network-tools:{cachedir.content_key([text])}"
    if not docker.has_image(tag):
        with _context(text) as context:
            docker.build(tag, context=context, dockerfile=context / "Dockerfile", arguments={})
    return tag


def _build(component: Component, programs: Path, system: str) -> None:
    with _context(dockerfile(component, system)) as context:
        (context / "programs").mkdir()
        for program in component.programs:
            place(programs / program, context / "programs")
        file = context / "Dockerfile"
        docker.build(component.image, context=context, dockerfile=file, arguments={})


def place(file: Path, folder: Path) -> None:
    """Put a large file into a build context, by a hard link where the file system allows it."""
    try:
        os.link(file, folder / file.name)
    except OSError:
        shutil.copy2(file, folder)


@contextmanager
def _context(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
        (Path(name) / "Dockerfile").write_text(text)
        yield Path(name)
