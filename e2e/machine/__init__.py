"""A Linux machine in QEMU as a node: systemd, cgroup v2, containerd and the kubelet of today."""
