"""Preflight checks: what test clusters need of a machine, looked at before one is made."""
