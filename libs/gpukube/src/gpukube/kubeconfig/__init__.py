"""Kubeconfig files: which one kubectl would use, and what it says."""
