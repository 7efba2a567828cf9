"""Fake programs and fixtures for the tests of packages that run programs."""
