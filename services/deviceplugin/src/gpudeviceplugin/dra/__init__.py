"""The node's GPUs as devices of Dynamic Resource Allocation."""
