"""What a command answers, computed from the state of a cluster."""
