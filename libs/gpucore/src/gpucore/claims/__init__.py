"""What kube-scheduler would allocate to a claim, and why not: decisions about ResourceClaims."""
