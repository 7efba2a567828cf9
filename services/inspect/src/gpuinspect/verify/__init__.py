"""Proof on the GPUs of a cluster: small pods on free shares, their answers, a table."""
