"""State of nodes and GPUs: allocations and free capacity."""
