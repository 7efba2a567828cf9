"""Registration with kubelet, settlement by settlement: who is started, and what is logged."""

from pathlib import Path

import pytest

from gpucore.node.allocation.device_ids import Resource
from gpudeviceplugin.kubelet.endpoint import KUBELET_SOCKET, RegistrationError
from gpudeviceplugin.kubelet.registration import Registrar


class World:
    """kubelet's directory, endpoints that are only noted, and what the registrar reported."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.effects: list[str] = []
        self.refuses: set[Resource] = set()
        self.registrar = Registrar(
            directory,
            lambda resource: Endpoint(self, resource),  # type: ignore[arg-type,return-value]
            kubelet_restarted=lambda: self.effects.append("kubelet restarted"),
            on_serving=lambda *, serving: self.effects.append(f"serving {serving}"),
        )

    def kubelet(self) -> None:
        """Kubelet makes its socket, and removes all others."""
        for socket in self.directory.glob("*.sock"):
            socket.unlink()
        (self.directory / KUBELET_SOCKET).write_text("")

    async def settle(self) -> list[str]:
        """Settle once; returns what was done."""
        self.effects.clear()
        await self.registrar._settle()
        return list(self.effects)


class Endpoint:
    """The socket of one resource."""

    def __init__(self, world: World, resource: Resource) -> None:
        self.world = world
        self.resource = resource
        self.socket = world.directory / f"{resource}.sock"

    def dropped(self) -> bool:
        """Kubelet keeps it."""
        return False

    async def start(self) -> None:
        """Serve and register; what is refused leaves nothing served."""
        self.socket.unlink(missing_ok=True)
        self.world.effects.append(f"start {self.resource}")
        if self.resource in self.world.refuses:
            raise RegistrationError("not wanted")
        self.socket.write_text("")

    async def withdraw(self) -> None:
        """Serve no more."""
        self.world.effects.append(f"withdraw {self.resource}")
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node with a kubelet."""
    made = World(tmp_path)
    made.kubelet()
    return made


async def test_a_registration_that_is_refused_is_no_readiness(world: World) -> None:
    """Neither at first nor after kubelet had taken it: it is reported, and tried again."""
    world.registrar.want([Resource.GPU])
    world.refuses = {Resource.GPU}
    assert await world.settle() == ["start gpu", "serving False"]
    assert not world.registrar.registered.is_set()
    world.refuses = set()
    assert await world.settle() == ["start gpu", "serving True"]
    assert world.registrar.registered.is_set()
    world.registrar.again()
    world.refuses = {Resource.GPU}
    await world.settle()
    assert not world.registrar.registered.is_set()


async def test_a_kubelet_that_restarts_is_registered_with_anew(world: World) -> None:
    """First the queue learns that kubelet starts over, then everything is started."""
    world.registrar.want([Resource.GPU])
    await world.settle()
    assert await world.settle() == ["serving True"]
    (world.directory / KUBELET_SOCKET).unlink()
    assert await world.settle() == []
    (world.directory / "other").write_text("")  # takes the old inode
    world.kubelet()
    assert await world.settle() == ["kubelet restarted", "start gpu", "serving True"]


async def test_a_resource_that_is_not_wanted_is_withdrawn_before_others_start(
    world: World,
) -> None:
    """Its label went; the other's came."""
    world.registrar.want([Resource.GPU])
    await world.settle()
    world.registrar.want([Resource.MEM])
    assert await world.settle() == ["withdraw gpu", "start gpu-mem", "serving True"]


async def test_a_node_without_labels_is_not_ready(world: World) -> None:
    """Nothing is wanted, so nothing is registered."""
    assert await world.settle() == []
    assert not world.registrar.registered.is_set()


async def test_a_removed_socket_is_made_again(world: World) -> None:
    """Only that one."""
    world.registrar.want([Resource.GPU, Resource.MEM])
    await world.settle()
    (world.directory / f"{Resource.MEM}.sock").unlink()
    assert await world.settle() == ["start gpu-mem", "serving True"]
