"""The node image of a Kubernetes version, built on Debian without an image registry.

It holds kind's own base files, the version's programs, and the control plane's images in the
containerd of the node.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host import cachedir, docker
from host.progress import step
from offline import componentimages, debianimage, imagecache, kubernetes, preload, release

_FILES = Path(__file__).parent / "node"
# The modules that decide what is in the image: a change in one of them makes a new image.
_RECIPE = ("nodebuild", "componentimages", "preload")
_PROGRAMS = ("kubelet", "kubeadm", "kubectl")
_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")


def key(version: str) -> str:
    """Changes with everything that the image of a version is made of."""
    code = [cachedir.code(Path(__file__).with_name(f"{module}.py")) for module in _RECIPE]
    files = [path for path in _FILES.rglob("*") if path.is_file()]
    return cachedir.content_key([kubernetes.key(version), debianimage.name(), *code], files)


def name(version: str) -> str:
    """The image's name, whether it is there or not; it changes with everything it is made of."""
    return f"gpushare/kind-node:v{version}-{key(version)}"


def ensure(version: str) -> str:
    """The name of the image of a version, present in the engine when this returns.

    It is there already, read back from its tar in the cache folder, or built, which takes minutes.
    """
    tag, kind = name(version), f"node-image-{release.minor(version)}"
    imagecache.ensure(tag, kind=kind, key=key(version), build=lambda: _build(version, tag))
    return tag


def _build(version: str, tag: str) -> None:
    """Make the image; its name comes last, so an image that bears it is complete."""
    programs = kubernetes.ensure(version)
    images = componentimages.ensure(programs, version)
    with _context(version, programs) as context, step("build the node's system"):
        system = f"gpushare/kind-node-system:{key(version)}"
        dockerfile = context / "ours/node.Dockerfile"
        arguments = _arguments(version, programs)
        docker.build(system, context=context, dockerfile=dockerfile, arguments=arguments)
    with step("put the control plane's images into the node image"):
        preload.commit(system, images=images, tag=tag)


def _arguments(version: str, programs: Path) -> dict[str, str]:
    oldest = version == release.OLDEST
    return {
        "BASE": debianimage.ensure(),
        "CONTAINERD": "containerd" if oldest else "",
        "PAUSE": componentimages.pause(programs, version),
        "SYSTEMD_CGROUP": "false" if oldest else "true",
        "VERSION": version,
    }


@contextmanager
def _context(version: str, programs: Path) -> Iterator[Path]:
    """What `node.Dockerfile` copies: kind's base files, ours, Kubernetes' programs."""
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as folder:
        context = Path(folder)
        kubernetes.base_files(version, context / "kind")
        shutil.copytree(_FILES, context / "ours")
        (context / "programs").mkdir()
        for program in (*_PROGRAMS, *_CONTAINERD):
            if (programs / program).exists():
                componentimages.place(programs / program, context / "programs")
        yield context
