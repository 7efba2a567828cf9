"""Choice of well connected GPUs of a machine.

Read from the bottom: ``links`` (what joins two GPUs), ``codec`` and ``drawing`` (matrices as text),
``gpusets`` and ``partition`` (the best group, exactly), ``greedy`` (more than 16 GPUs, or tables
that are not ready), ``choice``, ``static`` and ``machines``, and on top ``policies``, whose
``plan`` is the one entry point for the rest of the system.
"""
