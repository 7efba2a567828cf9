"""Runs and watches the MPS control daemons of this node, one for each card."""
