"""Bytes of the API server to narrow values and back; the only place that spells names."""
