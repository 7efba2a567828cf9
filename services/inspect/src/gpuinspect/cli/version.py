"""``gpushare version``."""

from importlib.metadata import version as installed


def version() -> None:
    """Print the version of this command."""
    print(f"gpushare {installed('gpushare-inspect')}")
