"""Facade of the node codecs."""

from gpucore.wire.node.inventories import (
    decode_inventory,
    encode_inventory,
    inventory_hash,
    inventory_of,
)
from gpucore.wire.node.spec import Node, decode_node
from gpucore.wire.node.unhealthy import kept_by_plugin, unhealthy_indexes, unhealthy_node

__all__ = [
    "Node",
    "decode_inventory",
    "decode_node",
    "encode_inventory",
    "inventory_hash",
    "inventory_of",
    "kept_by_plugin",
    "unhealthy_indexes",
    "unhealthy_node",
]
