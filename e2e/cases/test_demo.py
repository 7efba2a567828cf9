"""The demo as an ordinary user has it: a `kindest/node` image that is on the machine already."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.kind import KindEnvironment
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.since("1.34"), pytest.mark.timeout(2400)]

NAME = "gpushare-local"
E2E = Path(__file__).parents[1]
UP_SECONDS = 1800


@pytest.fixture
def local_image(prepared: KindEnvironment) -> Iterator[str]:
    """The image of the cases under an official name, which the engine has not had before."""
    image = prepared.node_image
    assert image is not None
    if not image.built_here:
        pytest.skip(f"the cases run on such an image themselves: {image.described()}")
    with prepared.node_image_named(f"kindest/node:v{image.version}-{secrets.token_hex(3)}") as name:
        yield name


def demo(environment: KindEnvironment, action: str) -> str:
    """What `make demo` prints, progress and table."""
    version = ".".join(map(str, environment.version))
    done = subprocess.run(
        [sys.executable, "-m", "demo", action, "--name", NAME],
        env={**os.environ, "PYTHONPATH": str(E2E), "KUBERNETES": version},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=UP_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def output(command: list[str]) -> str:
    """What a command prints; empty where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode else done.stdout


def test_the_demo_runs_on_a_local_official_image_and_names_it(
    prepared: KindEnvironment, local_image: str
) -> None:
    """It is taken before one that was built here; its pods find Services by name."""
    try:
        printed = demo(prepared, "up")
        assert f"node image {local_image} (local or pulled)" in printed
        assert f"Kubernetes {prepared.version[0]}.{prepared.version[1]}." in printed
        assert "Allocated/Total GPU Memory In Cluster:\n59/186 (31%)" in printed
        world = KindEnvironment(NAME)
        name = "kubernetes.default.svc.cluster.local"
        kubectl = [str(world.folder / "bin" / "kubectl"), "--kubeconfig", str(world.kubeconfig)]
        look = [*kubectl, "exec", "-n", "demo", "deploy/binpack", "--", "getent", "hosts", name]
        found = until("the cluster's DNS answers", lambda: output(look))
        assert found.split()[0] == "10.96.0.1"
    finally:
        demo(prepared, "down")
