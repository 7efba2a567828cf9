"""Nodes to and from the wire: the one name to import for a node's bytes and text."""

from gpucore.wire.inventories import (
    decode_inventory,
    encode_inventory,
    inventory_hash,
    inventory_of,
)
from gpucore.wire.nodespec import Node, decode_node
from gpucore.wire.unhealthy import kept_by_plugin, unhealthy_indexes, unhealthy_node

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
