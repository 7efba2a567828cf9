"""What every other part of `e2e/` does on this machine: programs, Docker, the cache folder, root.

Standard library only, and nothing of the other packages of `e2e/`.
"""
