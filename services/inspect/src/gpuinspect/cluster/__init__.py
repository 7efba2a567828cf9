"""A cluster as it is read: from an API server or a snapshot."""
