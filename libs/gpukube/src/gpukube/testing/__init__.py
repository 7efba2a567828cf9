"""Fakes for tests of everything that talks to an API server; not part of the wheel."""
