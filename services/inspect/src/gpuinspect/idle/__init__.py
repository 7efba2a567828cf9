"""Evicts pods that stay idle after a notice: decisions on fresh figures, notices, evictions."""
