"""Objects that the plugin watches and writes on the API server."""
