"""Whether this run is one of CI, where nothing may be missing."""

import os


def in_ci() -> bool:
    """``CI=true`` or ``CI=1`` is set."""
    return os.environ.get("CI", "").lower() in {"1", "true"}
