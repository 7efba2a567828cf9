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

    Args:
        image: has a program ``sleep``.

    Raises:
        SetupError: no new container got the address.
    """
    with ExitStack() as containers:
        for _ in range(_HOLDERS):
            if _hold(containers, network=network, image=image) == address:
                break
        else:
            raise SetupError(f"{_HOLDERS} new containers on {network} did not get {address}")
        yield


def _hold(containers: ExitStack, *, network: str, image: str) -> str:
    """Start a container that is removed when the stack unwinds; its address."""
    run = ["docker", "run", "--detach", "--rm", "--network", network, "--entrypoint", "sleep"]
    holder = run_command([*run, image, _LIFE_SECONDS], timeout_s=60).strip()
    containers.callback(partial(_remove, holder))
    field = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
    return run_command(["docker", "inspect", "--format", field, holder], timeout_s=30).strip()


def _remove(container: str) -> None:
    run_command(["docker", "rm", "--force", container], timeout_s=60)
