"""The cosign command from its Go module, which signs releases in a registry."""

from pathlib import Path

from host import cachedir
from host.progress import step
from offline import goprograms, gotoolchain

_MODULE = "cosign"


def ensure() -> Path:
    """The program, compiled if needed; ten minutes the first time on two busy cores.

    Raises:
        SetupError: the module cannot be had, or does not compile here.
    """
    key = cachedir.content_key([gotoolchain.VERSION], goprograms.inputs(_MODULE))
    return cachedir.entry(_MODULE, key, _fill) / "cosign"


def _fill(folder: Path) -> None:
    with step("compile cosign (minutes)"):
        goprograms.compile_module(goprograms.MODULES / _MODULE, into=folder)
