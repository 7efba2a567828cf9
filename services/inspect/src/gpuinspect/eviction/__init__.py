"""What all commands that evict have in common: the Eviction API, events, one Lease of a run."""
