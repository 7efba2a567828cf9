"""Certificates for the listeners of a release: issued and renewed by a Job in the cluster.

The chart renders empty Secrets and this Job fills them, so that rendering the chart is
deterministic and no private key passes through a GitOps repository.
"""
