"""Puts the extender into the cluster's own kube-scheduler, where kubeadm runs it, and takes it out.

Pure functions over texts decide the changes (:mod:`manifest`, :mod:`configuration`, :mod:`plan`);
:mod:`files` reads and writes the node's files, :mod:`cluster` reads the extender's address and the
scheduler's state from the API server.
"""
