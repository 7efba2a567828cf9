"""The helm command from its Go module, for cases that install as a reader of the README does."""

from pathlib import Path

from offline import goprograms


def ensure() -> Path:
    """The program, compiled if needed; ten minutes the first time on two busy cores.

    Raises:
        SetupError: the module cannot be had, or does not compile here.
    """
    return goprograms.ensure("helm") / "helm"
