# The root file system of the machine: Debian with systemd, a kernel, containerd and kubelet. The
# context holds: guest/ (this folder), programs/ (kubelet and containerd's).
ARG BASE
FROM ${BASE}

RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      linux-image-cloud-amd64 initramfs-tools zstd \
      systemd systemd-sysv dbus udev openssh-server \
      conntrack iptables nftables iproute2 ethtool socat \
      util-linux mount kmod libseccomp2 procps apparmor \
      runc containernetworking-plugins \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

COPY programs/ /usr/bin/
COPY guest/root/ /

# The files of a run come from a second disk (gpushare-files).
ARG PAUSE
RUN sed -i "s,PAUSE,${PAUSE}," /etc/containerd/config.toml \
 && mkdir -p /opt/cni /etc/kubernetes/manifests /root/.ssh \
 && chmod 0700 /root/.ssh \
 && ln -s /usr/lib/cni /opt/cni/bin \
 && echo '/dev/vda / ext4 defaults 0 1' > /etc/fstab \
 && rm -f /etc/machine-id && touch /etc/machine-id \
 && systemctl enable systemd-networkd gpushare-files gpushare-services containerd kubelet ssh \
 && systemctl mask getty@tty1.service systemd-networkd-wait-online.service apt-daily.timer \
      apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
 && for kind in vmlinuz initrd.img; do cp /boot/$kind-*-cloud-amd64 /boot/$kind; done
