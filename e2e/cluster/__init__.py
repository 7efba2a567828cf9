"""A kind cluster for the end-to-end cases, from a registry, Go modules or Debian packages.

Standard library only, so that `python -m cluster` also runs before any virtual environment
exists. Every module raises `ClusterError` with one sentence that says what to do. Nothing here
promises a production cluster: nodes built here have a pod network without network policies.
"""
