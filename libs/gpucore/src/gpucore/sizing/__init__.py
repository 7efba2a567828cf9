"""Measured GPU memory of workloads, and the sizes that follow from it."""
