"""A kind cluster for the end-to-end cases, from a registry or from Debian packages alone.

Standard library only, so that `python -m cluster` also runs before any virtual environment
exists. Every module raises `ClusterError` with one sentence that says what to do. Nothing here
promises a production cluster: the package-built nodes have no CoreDNS and run Kubernetes 1.20.
"""
