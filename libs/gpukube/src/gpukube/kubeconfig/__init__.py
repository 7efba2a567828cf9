"""Kubeconfig files: which one kubectl would use, and its content."""
