"""One file a page: from a frame to markup, and nothing else."""
