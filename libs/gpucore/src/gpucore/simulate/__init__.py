"""What-if questions: pods that do not exist yet, placed on a copy of the cluster."""
