"""Defragmentation that evicts: which pods may move, for whom, and how many."""
