"""ResourceClaims on a node: what their containers are given, and what outlives a restart."""
