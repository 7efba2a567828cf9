"""An address of Docker's network is taken, by whichever container the engine gives it to."""

import pytest

from host.addresses import holding_address
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms

ENGINE = """
next=4
while read -r call; do case "$call" in "docker run"*) next=$((next + 1)) ;; esac; done < {log}
case "$1 $2" in
  "run --detach") echo holder ;;
  "network inspect") echo "172.18.0.2/16 {other} 172.18.0.$next/16" ;;
esac
"""
"""Each new container gets the next address, from 172.18.0.5 on."""


def hold(programs: FakePrograms, address: str, *, other: str = "") -> list[str]:
    """Have an address taken, and let go of it; the commands that the engine was given.

    Args:
        other: address of a container of somebody else.
    """
    log = programs.folder.parent / "calls"
    programs.add("docker", ENGINE.format(log=log, other=other))
    with holding_address(address, network="kind", image="sample"):
        pass
    return [call.split()[1] for call in programs.calls()]


def test_containers_are_started_until_one_has_the_address(programs: FakePrograms) -> None:
    """The engine gives lower addresses first; all containers are removed in the end."""
    commands = hold(programs, "172.18.0.7")
    assert commands.count("run") == commands.count("rm") == 3


def test_an_address_that_another_cluster_has_taken_is_taken(programs: FakePrograms) -> None:
    """It was free for a moment, and a node of the other cluster got it."""
    commands = hold(programs, "172.18.0.3", other="172.18.0.3/16")
    assert commands.count("run") == commands.count("rm") == 1


def test_an_address_that_no_container_gets_is_an_error(programs: FakePrograms) -> None:
    """It does not begin with one that is taken, and all containers are removed."""
    with pytest.raises(SetupError, match=r"did not get 172\.18\.0\.1$"):
        hold(programs, "172.18.0.1", other="172.18.0.11/16")
    commands = [call.split()[1] for call in programs.calls()]
    assert commands.count("run") == commands.count("rm") == 16
