"""Corrections of allocations to what kubelet has allocated."""
