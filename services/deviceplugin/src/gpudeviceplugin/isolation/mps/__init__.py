"""Runs and monitors the MPS control daemons of this node, one for each GPU."""
