"""Which Kubernetes the test cluster runs: the newest stable one, or what KUBERNETES names.

`KUBERNETES` takes a version (`1.36.4`) or one of the two tested minors (`1.37`, `1.20`). Without it
the newest is used where the Go module proxy gives it, else the one that Debian packages.
"""

import os
import re

from host.errors import SetupError
from host.progress import say
from offline import debiankubernetes, goprograms

NEWEST = goprograms.pinned("kubernetes", "k8s.io/kubernetes")
OLDEST = debiankubernetes.VERSION
_VARIABLE = "KUBERNETES"


def requested() -> str:
    """The version that the environment names; "" when it names none.

    Raises SetupError for a text that is no version.
    """
    text = os.environ.get(_VARIABLE, "").strip().removeprefix("v")
    if not text:
        return ""
    for version in (NEWEST, OLDEST):
        if text in {version, minor(version)}:
            return version
    if not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise SetupError(
            f"{_VARIABLE}={text} is no version: give one such as 1.36.4, or {minor(NEWEST)} or "
            f"{minor(OLDEST)}"
        )
    return text


def chosen() -> str:
    """The version to build: the requested one, or the newest that can be had here."""
    version = requested()
    if version:
        return version
    if goprograms.obtainable(f"k8s.io/kubernetes@v{NEWEST}"):
        return NEWEST
    say(f"Debian's Kubernetes {OLDEST} is used instead of {NEWEST}")
    return OLDEST


def minor(version: str) -> str:
    """`1.37` of `1.37.1`."""
    return ".".join(version.split(".")[:2])
