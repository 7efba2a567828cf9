"""The parts of the stand-in for the MPS control daemon."""
