"""What publishes the ResourceSlice of a node, as the program would put it together."""

from collections.abc import Mapping
from typing import Any

import msgspec
from claimholding import prepared
from fakedriver import t4
from moduletime import Clock

from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName
from gpucore.wire.names import API, API_CLAIMS, API_DEVICES
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.dra.holding import ClaimHolder
from gpudeviceplugin.dra.publisher import SlicePublisher
from gpudeviceplugin.dra.slices import SliceWatch, slices_of
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.state import NodeState
from gpukube.client import HttpKubeClient
from gpukube.watch.informer import Informer

MACHINE = NodeHardware("535.1", (t4(0), t4(1), t4(2)), links={"0-1": ("NV1",)})


class Agent:
    """The publisher of a node with an informer of slices, beside a real client."""

    def __init__(
        self,
        client: HttpKubeClient,
        clock: Clock,
        machine: NodeHardware = MACHINE,
        *,
        node: str = "n1",
    ) -> None:
        self.client, self.clock, self.node = client, clock, node
        self.writes: list[tuple[str, float]] = []
        self.state = NodeState(GrantPolicy())
        self.state.offer(API_CLAIMS)
        self.holder = ClaimHolder(self.state)
        self.state.equip(inventory_of(machine, GIB))
        changed = self.state.outlook_changed
        self.watch = NodeWatch(changed)
        self.slices = SliceWatch(changed)
        self.publisher = SlicePublisher(self.state, self.watch, self.slices, self)  # type: ignore[arg-type]
        self.informer = Informer(client, slices_of(node), self.slices, silence=60)

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """As the client's."""
        return await self.client.get(path, params=params)

    async def post(self, path: str, body: Any) -> bytes:
        """As the client's, with a note of the time."""
        self.writes.append(("create", self.clock.now))
        return await self.client.post(path, body)

    async def patch(self, path: str, body: Any) -> bytes:
        """As the client's, with a note of the time."""
        self.writes.append(("update", self.clock.now))
        return await self.client.patch(path, body)

    async def delete(self, path: str) -> bytes:
        """As the client's, with a note of the time."""
        self.writes.append(("delete", self.clock.now))
        return await self.client.delete(path)

    def label(self, labels: Mapping[str, str], *, uid: str = "uid-n1") -> None:
        """The Node object has these labels; the one of the API counts at once here."""
        self.state.offer(API_CLAIMS if labels.get(API) == "claims" else API_DEVICES)
        self.watch.on_update(Node(NodeName(self.node), labels=dict(labels), uid=uid), b"")

    def inventory(self, **changes: Any) -> None:
        """GPU 0 differs."""
        now = self.state.inventory
        first = msgspec.structs.replace(now.gpus[0], **changes)
        self.state.equip(msgspec.structs.replace(now, gpus=(first, *now.gpus[1:])))

    def claim(self, number: int, gpu: int, gib: int) -> None:
        """A claim was prepared for a share of a GPU."""
        device = self.state.inventory.gpus[gpu]
        self.holder.hold(prepared(f"c{number}", device, gib, node=self.node))
