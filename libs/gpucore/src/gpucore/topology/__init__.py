"""Which whole cards of a machine belong together.

Read from the bottom: ``links`` (what joins two cards), ``codec`` and ``drawing`` (matrices as
text), ``lanes``, ``bounds``, ``symmetry``, ``groups``, ``subsets`` and ``search`` (the best group,
exactly), ``greedy`` (more than 16), ``choice``, ``static`` and ``machines``, and on top
``policies``, whose ``plan`` is the one question the rest of the system asks.
"""
