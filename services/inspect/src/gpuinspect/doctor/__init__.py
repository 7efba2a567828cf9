"""Checks of an installation, each with one sentence of what to do when it fails."""
