"""Images of the services and of the sample pod, built without a network in their containers."""
