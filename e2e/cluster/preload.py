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


def with_images(node_image: str, images: Sequence[str]) -> None:
    """Replace `node_image` by one of the same name whose containerd holds `images`."""
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="preload-") as name:
        docker.save(images, Path(name) / "images.tar")
        with _running(node_image, Path(name)) as container:
            _start_containerd(container)
            ctr = ["docker", "exec", container, "ctr", "--namespace", "k8s.io", "images"]
            run([*ctr, "import", "--no-unpack", "/preload/images.tar"], timeout_s=300)
            # containerd must not be cut off in the middle of its database.
            run(["docker", "exec", container, "pkill", "-TERM", "containerd"], timeout_s=20)
            _wait(container, "! pgrep -x containerd", "containerd did not stop")
            change = ["--change", _ENTRYPOINT, "--change", "CMD []"]
            run(["docker", "commit", *change, container, node_image], timeout_s=300)


@contextmanager
def _running(image: str, folder: Path) -> Iterator[str]:
    options = ["--privileged", "--detach", "--volume", f"{folder}:/preload:ro"]
    command = ["docker", "run", *options, "--entrypoint", "sleep", image, "infinity"]
    container = run(command, timeout_s=60).strip()
    try:
        yield container
    finally:
        run(["docker", "rm", "--force", "--volumes", container], timeout_s=60)


def _start_containerd(container: str) -> None:
    run(["docker", "exec", "--detach", container, "containerd"], timeout_s=20)
    _wait(container, "ctr version", "containerd did not start")


def _wait(container: str, condition: str, complaint: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not succeeds(["docker", "exec", container, "sh", "-c", condition], timeout_s=20):
        if time.monotonic() > deadline:
            raise ClusterError(f"{complaint} in the node image within {_START_TIMEOUT_S:g} s")
        time.sleep(0.2)
