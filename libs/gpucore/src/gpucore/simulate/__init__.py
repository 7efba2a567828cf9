"""Pods that do not exist yet, moves and traces, tried on a copy of the cluster."""
