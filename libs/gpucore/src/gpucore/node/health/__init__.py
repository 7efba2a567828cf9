"""Whether a GPU may be offered."""
