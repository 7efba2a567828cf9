"""Fixtures for tests, of any package, that need what an environment is made of."""
