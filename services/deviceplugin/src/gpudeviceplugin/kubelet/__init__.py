"""Registration with kubelet, the device plugin API, and PodResources."""
