# A kind node on Debian. The context holds: kind/ (kind's own base files), ours/ (this folder),
# programs/ (kubelet, kubeadm, kubectl, and containerd's where it is compiled). The builder gives
# the base image and CONTAINERD, the package to install where no containerd is in programs/.
ARG BASE
FROM ${BASE}

ARG CONTAINERD
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      systemd systemd-sysv dbus \
      conntrack iptables nftables iproute2 ethtool ebtables socat \
      util-linux mount kmod libseccomp2 pigz curl jq procps \
      ${CONTAINERD} runc containernetworking-plugins \
 && rm -rf /var/lib/apt/lists/*

# Units that expect a machine of their own; the same that kind's base image takes out.
RUN find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete \
 && rm -f /lib/systemd/system/multi-user.target.wants/* \
          /etc/systemd/system/*.wants/* \
          /lib/systemd/system/local-fs.target.wants/* \
          /lib/systemd/system/sockets.target.wants/*udev* \
          /lib/systemd/system/sockets.target.wants/*initctl* \
          /lib/systemd/system/basic.target.wants/* \
 && echo ReadKMsg=no >> /etc/systemd/journald.conf

COPY kind/ /
COPY programs/ /usr/bin/
COPY ours/90-unmount-kubelet-cgroups.conf /etc/systemd/system/kubelet.service.d/
COPY ours/pod-network.service ours/pod-network.path /etc/systemd/system/
COPY ours/pod-network /usr/local/sbin/pod-network
COPY ours/manifests/ /kind/manifests/

# Where kind's units look for what Debian puts elsewhere.
RUN chmod 0755 /kind/bin/* /usr/local/bin/* /usr/local/sbin/pod-network \
 && ln -s /usr/bin/containerd /usr/bin/ctr /usr/bin/containerd-shim-runc-v2 /usr/local/bin/ \
 && ln -s /usr/sbin/runc /usr/local/sbin/runc \
 && mkdir -p /opt/cni /etc/kubernetes/manifests \
 && ln -s /usr/lib/cni /opt/cni/bin

# The oldest kubelet drives cgroups itself, and nothing may ask for a negative OOM score.
ARG PAUSE
ARG VERSION
ARG SYSTEMD_CGROUP
RUN sed -i -e "s/SystemdCgroup = true/SystemdCgroup = ${SYSTEMD_CGROUP}/" \
           -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
           -e "s,sandbox_image = .*,sandbox_image = \"${PAUSE}\"," /etc/containerd/config.toml \
 && ctr oci spec \
    | jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    > /etc/containerd/cri-base.json \
 && echo "v${VERSION}" > /kind/version \
 && systemctl enable kubelet containerd undo-mount-hacks pod-network.path \
 && systemctl mask systemd-binfmt.service

ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
