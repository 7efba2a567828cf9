"""What tests of several packages have in common; not part of the wheel."""
