"""Decisions on a node: matching kubelet's calls to pods, and allocating devices."""
