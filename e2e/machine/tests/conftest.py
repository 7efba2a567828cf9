"""Fixtures: fake programs on PATH and a cache folder of the test's own."""

from host.testing.fixtures import cache, programs

__all__ = ["cache", "programs"]
