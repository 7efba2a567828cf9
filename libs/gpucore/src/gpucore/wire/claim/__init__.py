"""ResourceSlices and ResourceClaims: bytes to values, and back."""
