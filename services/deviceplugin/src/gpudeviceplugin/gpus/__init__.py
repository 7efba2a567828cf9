"""The GPUs of this node: calls to the driver, inventory, health."""
