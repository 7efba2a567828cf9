"""Puts the extender into the cluster's own kube-scheduler, where kubeadm runs it, and takes it out.

What is to be written is decided by pure functions over texts (:mod:`manifest`,
:mod:`configuration`, :mod:`plan`); :mod:`files` reads and writes the node's files, :mod:`cluster`
asks the API server what to put in and how the scheduler is.
"""
