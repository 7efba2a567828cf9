"""``make demo``: the stack on a cluster of mock GPUs, with pods on it, for a person to look at."""
