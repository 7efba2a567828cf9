"""Decoders and encoders of API objects; the only package that spells names."""
