"""The page: what the commands say, live in a browser. Read-only."""
