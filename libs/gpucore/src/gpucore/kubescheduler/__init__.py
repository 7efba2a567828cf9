"""kube-scheduler's own filters, and the nodes of a cluster as these see them."""
