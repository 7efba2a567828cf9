"""Enforcement of shares on a node, and detection of pods that exceed them."""
