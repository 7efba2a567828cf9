"""krew and the program with which its index validates manifests, from krew's Go module."""

from pathlib import Path

from host import cachedir
from host.progress import step
from offline import goprograms, gotoolchain


def ensure() -> Path:
    """The folder of `krew` and `validate-krew-manifest`, compiled if needed.

    Raises:
        SetupError: the module cannot be had, or does not compile here.
    """
    key = cachedir.content_key([gotoolchain.VERSION], goprograms.inputs("krew"))
    return cachedir.entry("krew", key, _compile)


def _compile(folder: Path) -> None:
    with step("compile krew"):
        goprograms.compile_module(goprograms.MODULES / "krew", into=folder)
