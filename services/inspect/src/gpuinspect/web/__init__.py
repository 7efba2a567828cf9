"""The dashboard: the data of the commands, live in a browser. Read-only."""
