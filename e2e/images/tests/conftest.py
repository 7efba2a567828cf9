"""Fixtures of these tests, which reach no engine, package archive or cluster."""

from host.testing.fixtures import cache

__all__ = ["cache"]
