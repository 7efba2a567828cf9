"""Images of the control plane's parts, under the names that the version's own kubeadm lists.

Static programs need nothing else; kube-proxy needs the network tools and etcd may need the C
library. Tags are kubeadm's, whatever version lies in them (Debian's etcd is newer).
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from host import cachedir, docker
from host.commands import run_command
from host.progress import step
from offline import debianimage, kubernetes

_NETWORK_TOOLS = "iptables conntrack kmod ipset"
_NOT_STATIC = ("kube-proxy", "etcd")
_BESIDE = {"etcd": ("etcdctl",)}


@dataclass(frozen=True)
class Component:
    """One image: its name and the programs in it, of which the first is run."""

    image: str
    programs: tuple[str, ...]

    @property
    def static(self) -> bool:
        """Whether its programs need no system around them."""
        return self.programs[0] not in _NOT_STATIC


def components(programs: Path, version: str) -> list[Component]:
    """The images that kubeadm wants and whose program is in the folder `programs`."""
    words = ["config", "images", "list", f"--kubernetes-version=v{version}"]
    listing = run_command([programs / "kubeadm", *words], timeout_s=60).split()
    found = [(image, image.rpartition(":")[0].rpartition("/")[2]) for image in listing]
    return [
        Component(image, (name, *_BESIDE.get(name, ())))
        for image, name in found
        if (programs / name).exists()
    ]


def pause(programs: Path, version: str) -> str:
    """The name of the sandbox image."""
    found = components(programs, version)
    return next(each.image for each in found if each.programs[0] == "pause")


def ensure(programs: Path, version: str) -> list[str]:
    """Build every component image from the folder of programs; their names."""
    wanted = components(programs, version)
    with step("build the control plane's images"):
        system = _system_image()
        for component in wanted:
            _build(component, programs, system)
    return [component.image for component in wanted]


def ensure_pause(version: str) -> str:
    """The name of the sandbox image of a version, built when the engine does not hold it."""
    programs = kubernetes.ensure(version)
    name = pause(programs, version)
    if not docker.has_image(name):
        found = components(programs, version)
        component = next(each for each in found if each.image == name)
        _build(component, programs, "")
    return name


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
