"""Pods: bytes and text to values, and back."""
