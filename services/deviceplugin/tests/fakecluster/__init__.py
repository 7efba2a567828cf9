"""Objects of the fake cluster: pods and nodes as an API server would have them."""
