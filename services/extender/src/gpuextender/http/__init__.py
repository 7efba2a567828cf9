"""The HTTP servers of the extender: listeners, routes and their OpenAPI document."""
