"""Publishes the GPUs of the node in its annotations.

Extenders read the annotations; a changed label makes schedulers retry their pending pods; a count
in the node's status is for the original's tools. The publisher writes only where the Node differs
from the wanted state, so it does not loop with kubelet, which keeps fields it does not manage. If
another client keeps overwriting the fields, each further write of the same inventory waits longer.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from gpucore.wire import names as wire_names
from gpucore.wire.node.inventories import encode_inventory, inventory_hash
from gpucore.wire.node.matrices import encode_annotation, matrix_of
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.state import NodeState
from gpukube.client import KubeClient
from gpukube.errors import KubeError

log = structlog.get_logger()

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
INSTANCE_TYPE_LABELS: Final = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)


class Publisher:
    """Publishes the annotations and gpu-count of one node."""

    def __init__(
        self, state: NodeState, watch: NodeWatch, kube: KubeClient, *, node_type: str
    ) -> None:
        self._state = state
        self._watch = watch
        self._kube = kube
        self._node_type = node_type

    async def run(self) -> None:
        """Publish after every change, until cancelled."""
        pause, wanted = FIRST_PAUSE_SECONDS, ""
        while True:
            seen = self._state.outlook_changed.count
            before, wanted = wanted, self._inventory_text()
            if wanted != before:
                pause = FIRST_PAUSE_SECONDS
            try:
                wrote = await self._publish()
            except KubeError as error:
                log.warning("cannot publish the GPUs", why=str(error), again_in=pause)
            else:
                await self._state.outlook_changed.beyond_or_after(seen, LONGEST_PAUSE_SECONDS)
                if not wrote:
                    pause = FIRST_PAUSE_SECONDS
                    continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _publish(self) -> bool:
        """Write what differs; true when anything had to be written."""
        node = self._watch.node
        if node is None or not self._state.inventory.driver or self._is_first(node):
            return False
        path = f"/api/v1/nodes/{node.name}"
        metadata = self._metadata(node)
        count = self._count(node)
        if metadata:
            await self._kube.patch(path, {"metadata": metadata})
        if count:
            await self._kube.patch(f"{path}/status", {"status": count})
        return bool(metadata or count)

    def _is_first(self, node: Node) -> bool:
        """The node has no inventory yet: the first one waits until kubelet takes devices.

        Nothing is published before it is decided by which API the GPUs are offered.
        """
        first = wire_names.INVENTORY not in node.annotations
        return not self._state.api or (
            first and self._state.api == wire_names.API_DEVICES and not self._state.serving
        )

    async def withdraw(self) -> None:
        """Publish that this node accepts no new pods for now.

        Raises:
            KubeError: the Node could not be patched.
        """
        self._state.serve(serving=False)
        await self._publish()

    def _metadata(self, node: Node) -> dict[str, dict[str, str | None]]:
        """The difference, in one write, so that a client of the label finds the annotations too."""
        inventory = self._inventory_text()
        annotations = {
            wire_names.INVENTORY: inventory,
            wire_names.NODE_TOPOLOGY: self._topology(),
            **self._kind(node),
        }
        labels = {wire_names.INVENTORY_HASH: inventory_hash(inventory)}
        wrong = {
            "annotations": differing(node.annotations, annotations),
            "labels": differing(node.labels, labels),
        }
        return {field: texts for field, texts in wrong.items() if texts}

    def _inventory_text(self) -> str:
        claims = self._state.api == wire_names.API_CLAIMS
        serving = self._state.serving and self._state.api == wire_names.API_DEVICES
        api = wire_names.API_CLAIMS if claims else ""
        inventory, withheld = self._state.inventory, self._state.inherited.withheld
        gpus = tuple(
            msgspec.structs.replace(gpu, withheld=withheld[gpu.index]) for gpu in inventory.gpus
        )
        return encode_inventory(
            msgspec.structs.replace(inventory, gpus=gpus, serving=serving, api=api)
        )

    def _kind(self, node: Node) -> dict[str, str]:
        kind = self._node_type or next(
            (node.labels[key] for key in INSTANCE_TYPE_LABELS if key in node.labels), ""
        )
        return {wire_names.NODE_TYPE: kind} if kind else {}

    def _topology(self) -> str | None:
        """The links of the GPUs without MIG; ``None`` removes the annotation where none are."""
        inventory = self._state.inventory
        full = tuple(gpu.index for gpu in inventory.gpus if not gpu.mig)
        return encode_annotation(matrix_of(inventory).part(full)) if inventory.links else None

    def _count(self, node: Node) -> dict[str, Any]:
        name = self._state.policy.names.gpu_count
        count = str(len(self._state.inventory.gpus))
        wrong = [
            field
            for field, current in (("capacity", node.capacity), ("allocatable", node.allocatable))
            if current.get(name) != count
        ]
        return {field: {name: count} for field in wrong}


def differing(
    current: Mapping[str, str], wanted: Mapping[str, str | None]
) -> dict[str, str | None]:
    """The part of ``wanted`` that the Node does not have yet; ``None`` removes a field."""
    return {key: text for key, text in wanted.items() if current.get(key) != text}
