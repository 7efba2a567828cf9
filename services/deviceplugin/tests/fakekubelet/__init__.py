"""A kubelet for tests, with the behaviour that device plugins see.

Real sockets, and the rules of the real device manager.
"""
