"""What proves a GPU share: a CUDA program of the standard library alone, and the checks it serves.

The program runs in containers (``python -m gpuprobe``), the checks read what it reports.
"""
