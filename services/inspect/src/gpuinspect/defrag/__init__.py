"""Evicts pods so that a pod that waits fits: reads, one Lease, the Eviction API, events."""
