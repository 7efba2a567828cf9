"""How shares are enforced: isolation modes, MPS, CDI files, overridden limits."""
