"""The GPUs of this node: NVML, inventory, health, usage."""
