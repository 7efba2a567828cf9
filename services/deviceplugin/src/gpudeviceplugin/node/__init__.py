"""The loops of the whole node: they join the GPUs, their isolation and what kubelet is offered."""
