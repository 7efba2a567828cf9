"""Images of the services and of the sample pod, built on a machine whose containers see no registry."""
