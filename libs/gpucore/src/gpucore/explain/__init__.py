"""Reasons as text: why a pod is pending, why it has its GPU, what would help, and the documents."""
