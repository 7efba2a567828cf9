"""Model servers on shares: from flags to values, through Helm to a cluster, and back as a list."""
