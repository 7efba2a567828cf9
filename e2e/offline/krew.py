"""krew and the program with which its index validates manifests, from krew's Go module."""

from pathlib import Path

from offline import goprograms


def ensure() -> Path:
    """The folder of `krew` and `validate-krew-manifest`, compiled if needed.

    Raises:
        SetupError: the module cannot be had, or does not compile here.
    """
    return goprograms.ensure("krew")
