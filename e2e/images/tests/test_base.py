"""What is read from a base image's answer about itself."""

import json

import pytest

from host.errors import SetupError
from images import base


def answer(**changes: object) -> str:
    """An answer of the probe."""
    return json.dumps({"python": [3, 12], "glibc": "2.36", "machine": "x86_64", **changes})


def test_reads_interpreter_and_platform() -> None:
    """Version, C library and machine come from the image, not from this machine."""
    found = base.read("b:1", identity="sha256:1", answer=answer())
    assert (found.python, found.glibc, found.machine) == ("3.12", "2.36", "x86_64")


def test_platforms_go_down_from_the_c_library() -> None:
    """A wheel for any older glibc fits, one for a newer never."""
    platforms = list(base.read("b:1", identity="i", answer=answer(glibc="2.17")).platforms())
    assert platforms[0] == "manylinux_2_17_x86_64"
    assert "manylinux_2_5_x86_64" in platforms
    assert "manylinux2014_x86_64" in platforms
    assert "manylinux_2_18_x86_64" not in platforms


def test_musl_is_refused_with_a_sentence() -> None:
    """An Alpine base is refused before wheels are fetched for it."""
    with pytest.raises(SetupError, match="b:1 has no glibc"):
        base.read("b:1", identity="i", answer=answer(glibc=""))
