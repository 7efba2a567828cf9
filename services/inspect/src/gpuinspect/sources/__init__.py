"""Other inputs: manifests, Prometheus, traces, topology sets."""
