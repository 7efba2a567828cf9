"""The functional core of gpushare: every decision, no I/O, no clock, no threads.

Values come in (decoded by ``gpucore.wire``), values go out. Time, randomness and identity are
arguments. The services around this package do the I/O with the API server, kubelet and NVML.
"""

VERSION = "0.1.0"
"""The version of every package; of the charts too, which a test compares with it."""
