"""A kubelet for tests, as far as device plugins can tell.

Real sockets, and the rules of the real device manager.
"""
