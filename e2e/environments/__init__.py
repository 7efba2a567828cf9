"""Where the cases run: each environment brings a cluster with the stack, or states why not."""
