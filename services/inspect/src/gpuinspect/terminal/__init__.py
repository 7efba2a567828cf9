"""Text on a terminal: tables, wrapping, live updates."""
