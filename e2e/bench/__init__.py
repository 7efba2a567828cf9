"""``make bench``: the extender on a real control plane, measured and written down."""
