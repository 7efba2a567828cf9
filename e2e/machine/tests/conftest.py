"""Fixtures: fake programs on PATH."""

from host.testing.fixtures import programs

__all__ = ["programs"]
