"""Addresses of Docker's networks: who has one is decided by the engine, lowest free one first."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from host.commands import run_command
from host.errors import SetupError

_HOLDERS = 16
"""How many containers to start at most; other addresses below the wanted one may be free too."""
_LIFE_SECONDS = "900"
"""Of a holder whose starter was killed."""


@contextmanager
def holding_address(address: str, *, network: str, image: str) -> Iterator[None]:
    """Have a container take a free IPv4 address of a network, for as long as the context lasts.

    A container of somebody else, such as a node of another cluster, may take it first.

    Args:
        image: has a program ``sleep``.

    Raises:
        SetupError: no container has the address.
    """
    with ExitStack() as containers:
        for _ in range(_HOLDERS):
            _hold(containers, network=network, image=image)
            if address in _addresses(network):
                break
        else:
            raise SetupError(f"{_HOLDERS} new containers on {network} did not get {address}")
        yield


def _hold(containers: ExitStack, *, network: str, image: str) -> None:
    """Start a container that is removed when the stack unwinds."""
    run = ["docker", "run", "--detach", "--rm", "--network", network, "--entrypoint", "sleep"]
    holder = run_command([*run, image, _LIFE_SECONDS], timeout_s=60).strip()
    containers.callback(partial(_remove, holder))


def _addresses(network: str) -> list[str]:
    """IPv4 addresses of the containers of a network."""
    fields = "{{range .Containers}}{{.IPv4Address}} {{end}}"
    command = ["docker", "network", "inspect", "--format", fields, network]
    return [each.partition("/")[0] for each in run_command(command, timeout_s=30).split()]


def _remove(container: str) -> None:
    run_command(["docker", "rm", "--force", container], timeout_s=60)
