"""The scheduler extender: chooses GPUs and records them in the write that binds the pod."""
