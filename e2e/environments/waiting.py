"""Waiting, as cases have it: the one helper of :mod:`host.waiting`."""

from host.waiting import DeadlineError, until

__all__ = ["DeadlineError", "until"]
