"""Sizes of pods at their creation, from what was measured of their workloads."""
