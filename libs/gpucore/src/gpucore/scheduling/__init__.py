"""Which nodes admit a pod, which of them is best, and which GPUs it gets there."""
