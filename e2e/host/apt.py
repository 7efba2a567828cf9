"""apt-get, tried again where a mirror answers slowly or fails once."""

import re
from typing import Final

from host.errors import SetupError
from host.fetching import with_retries
from host.privilege import as_root

OPTIONS: Final = ("-o", "Acquire::Retries=5", "-o", "Acquire::http::Timeout=60")
"""It tries single files again by itself, but not those that a whole list is signed by."""
_STALE: Final = re.compile(
    r"Unable to locate package|has no installation candidate|\b404 +Not Found"
)
"""What it prints where the machine has no lists of packages, or old ones."""


def install(*packages: str, recommended: bool = False, timeout_s: float = 900) -> None:
    """Install packages; the lists of packages are read first where they lack or are old.

    Args:
        recommended: with the packages that these recommend.

    Raises:
        SetupError: the packages cannot be had, or this user is not root.
    """
    options = ["-y", "-q", *([] if recommended else ["--no-install-recommends"])]
    try:
        _apt_get("install", *options, *packages, timeout_s=timeout_s)
    except SetupError as error:
        if not _STALE.search(str(error)):
            raise
        update()
        _apt_get("install", *options, *packages, timeout_s=timeout_s)


def update() -> None:
    """Read the lists of packages of this machine's sources."""
    _apt_get("update", "-q", timeout_s=300)


def _apt_get(*words: str, timeout_s: float) -> None:
    with_retries(lambda: as_root(["apt-get", *OPTIONS, *words], timeout_s=timeout_s))
