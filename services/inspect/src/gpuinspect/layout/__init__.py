"""Tables and texts for a terminal; those of the original commands are the same to the byte."""
