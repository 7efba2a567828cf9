"""What only hardware can show: the real plugin, the real driver and CUDA processes on shares."""
