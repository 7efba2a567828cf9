"""What the services share towards Kubernetes and the network."""
