"""Where the cases run: each environment brings a cluster with the stack on it, or says why not."""
