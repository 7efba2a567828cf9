"""A kind cluster for the end-to-end cases: the engine, the choice of images, and its life cycle.

What a registry gives is pulled; the rest is built by :mod:`offline`. Standard library only, so that
`python -m cluster` also runs before any virtual environment exists. Every module raises
`SetupError` with one sentence that states what to do. Nothing here promises a production cluster:
nodes built here have a pod network without network policies.
"""
