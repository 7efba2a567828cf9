"""Put images into a node image's own containerd, so that nodes never ask a registry for them.

The node image is run once with only its containerd, fed, and committed. Layers are stored packed;
each node unpacks what it runs.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from host import cachedir, docker
from host.commands import run_command, succeeds
from host.errors import SetupError
from host.waiting import DeadlineError, until

_START_TIMEOUT_S = 60.0
_ENTRYPOINT = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'


def commit(node_image: str, *, images: Sequence[str], tag: str) -> None:
    """Make the image `tag`: `node_image` with `images` of the engine in its containerd."""
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="preload-") as name:
        docker.save(images, Path(name) / "images.tar")
        with _containerd(node_image, Path(name)) as container:
            _wait_for_containerd(container)
            ctr = ["docker", "exec", container, "ctr", "--namespace", "k8s.io", "images"]
            run_command([*ctr, "import", "--no-unpack", "/preload/images.tar"], timeout_s=300)
            # Let containerd close its database before its files are taken.
            run_command(["docker", "kill", "--signal=TERM", container], timeout_s=20)
            run_command(["docker", "wait", container], timeout_s=60)
            change = ["--change", _ENTRYPOINT, "--change", "CMD []"]
            run_command(["docker", "commit", *change, container, tag], timeout_s=300)


@contextmanager
def _containerd(image: str, folder: Path) -> Iterator[str]:
    options = ["--privileged", "--detach", "--volume", f"{folder}:/preload:ro"]
    command = ["docker", "run", *options, "--entrypoint", "containerd", image]
    container = run_command(command, timeout_s=60).strip()
    try:
        yield container
    finally:
        run_command(["docker", "rm", "--force", "--volumes", container], timeout_s=60)


def _wait_for_containerd(container: str) -> None:
    version = ["docker", "exec", container, "ctr", "version"]
    try:
        until(
            "containerd answers",
            lambda: succeeds(version, timeout_s=20),
            seconds=_START_TIMEOUT_S,
        )
    except DeadlineError as error:
        raise SetupError(
            f"containerd of the node image does not answer after {_START_TIMEOUT_S:g} s: "
            + run_command(["docker", "logs", "--tail=5", container], timeout_s=20)
        ) from error
