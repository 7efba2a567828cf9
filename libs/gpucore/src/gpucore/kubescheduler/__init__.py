"""kube-scheduler's own rules: what a pod requires of a node, and which nodes admit it."""
