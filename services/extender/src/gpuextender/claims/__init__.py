"""GPUs that nodes offer as ResourceClaims: what is read of them; templates for old pods."""
