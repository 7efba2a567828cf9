"""The kinds of pods that usually come to a cluster, and what they cannot use of a node."""
