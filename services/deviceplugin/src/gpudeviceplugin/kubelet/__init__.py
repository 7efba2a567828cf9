"""Registration with kubelet, the device plugin API, PodResources, and the start gate."""
