"""Allocation of device IDs: matching kubelet's call to a pod, and the container's environment."""
