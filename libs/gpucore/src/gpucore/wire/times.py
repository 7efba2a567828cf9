"""Times in objects of the API server."""

from datetime import datetime


def unix_seconds(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time; 0 where the text is no time with a zone."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return found.timestamp() if found.tzinfo else 0.0
