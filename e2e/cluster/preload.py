"""Put images into a node image's own containerd, so that nodes never ask a registry for them.

The node image is run once with only its containerd, fed, and committed. Layers are stored packed;
each node unpacks what it runs.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster import cachedir, docker
from cluster.commands import run, succeeds
from cluster.errors import ClusterError

_START_TIMEOUT_S = 60.0
_ENTRYPOINT = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'


def commit(node_image: str, *, images: Sequence[str], tag: str) -> None:
    """Make the image `tag`: `node_image` with `images` of the engine in its containerd."""
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="preload-") as name:
        docker.save(images, Path(name) / "images.tar")
        with _containerd(node_image, Path(name)) as container:
            _wait_for_containerd(container)
            ctr = ["docker", "exec", container, "ctr", "--namespace", "k8s.io", "images"]
            run([*ctr, "import", "--no-unpack", "/preload/images.tar"], timeout_s=300)
            # Let containerd close its database before its files are taken.
            run(["docker", "kill", "--signal=TERM", container], timeout_s=20)
            run(["docker", "wait", container], timeout_s=60)
            change = ["--change", _ENTRYPOINT, "--change", "CMD []"]
            run(["docker", "commit", *change, container, tag], timeout_s=300)


@contextmanager
def _containerd(image: str, folder: Path) -> Iterator[str]:
    options = ["--privileged", "--detach", "--volume", f"{folder}:/preload:ro"]
    command = ["docker", "run", *options, "--entrypoint", "containerd", image]
    container = run(command, timeout_s=60).strip()
    try:
        yield container
    finally:
        run(["docker", "rm", "--force", "--volumes", container], timeout_s=60)


def _wait_for_containerd(container: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not succeeds(["docker", "exec", container, "ctr", "version"], timeout_s=20):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"containerd of the node image does not answer after {_START_TIMEOUT_S:g} s: "
                + run(["docker", "logs", "--tail=5", container], timeout_s=20)
            )
        time.sleep(0.2)
