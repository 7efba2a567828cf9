"""A small CUDA program on the driver API: standard library only, so that it runs in any image."""
