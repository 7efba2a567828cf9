"""kube-scheduler's own rules, as far as they are evaluated here."""
