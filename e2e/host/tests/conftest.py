"""Fixtures of these tests, which reach no engine, package archive or cluster."""

from host.testing.fixtures import cache, no_root, programs

__all__ = ["cache", "no_root", "programs"]
