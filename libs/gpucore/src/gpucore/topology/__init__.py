"""Choice of well connected GPUs of a machine.

Read from the bottom: ``gpusets`` and ``partition`` (the best group, exactly), ``choice``,
``static``, and on top ``policies``, whose ``plan`` is the one entry point for the rest of the
system. What joins two GPUs is in :mod:`gpucore.model.links`; ``drawing`` shows a matrix as text.
"""
