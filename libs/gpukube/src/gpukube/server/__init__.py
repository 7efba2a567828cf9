"""Listeners: ASGI servers, limits, TLS certificates."""
