"""The files that one run lays into the machine: kubelet's configuration, its GPUs, and a key.

They go there as a tar on a disk of their own, which the machine unpacks at every boot. So the mock
driver forgets its limits at a boot, as a driver does.
"""

import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from environments import machines
from machine.qemu import GATEWAY

NODE: Final = "localhost"
"""Name of the node: the one by which the API server, on this machine, reaches its kubelet."""
SERVICE: Final = "10.96.0.1"
"""ClusterIP of the API server's Service; no kube-proxy runs in the machine."""


def write_key(folder: Path, key: str) -> Path:
    """The tar with nothing but the key, in ``folder``: kubelet does not start."""
    return _tar(folder, {"root/.ssh/authorized_keys": key})


def write(
    folder: Path,
    *,
    machine: str,
    port: int,
    key: str,
    kubeconfig: Mapping[str, Any],
    more: Mapping[str, Path] | None = None,
) -> Path:
    """The tar, in ``folder``.

    Args:
        folder: of this run.
        machine: the mock machine whose GPUs it has.
        port: of its kubelet.
        key: public, of who may log in as root.
        kubeconfig: of its kubelet.
        more: other files and their paths in the machine, without the first slash.
    """
    for name, file in (more or {}).items():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / "root" / name)
    machines.write_files(folder / "root" / machines.IN_NODE.removeprefix("/"), machine)
    texts = {
        "etc/gpushare/kubelet.yaml": json.dumps(kubelet(port)),
        "etc/gpushare/kubeconfig": json.dumps(kubeconfig),
        "etc/gpushare/services.nft": services(_port(kubeconfig)),
        "root/.ssh/authorized_keys": key,
    }
    return _tar(folder, texts)


def kubelet(port: int) -> dict[str, Any]:
    """Its configuration: what is not named is kubelet's default, such as failCgroupV1."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": port,
        # The API server has no client certificate; the port is on the loopback of this machine.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "systemd",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "nodeStatusUpdateFrequency": "2s",
    }


def kubeconfig(url: str, token: str) -> dict[str, Any]:
    """Of the kubelet, for an API server on the loopback of this machine."""
    server = f"https://{GATEWAY}:{url.rpartition(':')[2]}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "host", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "kubelet", "user": {"token": token}}],
        "contexts": [{"name": "host", "context": {"cluster": "host", "user": "kubelet"}}],
        "current-context": "host",
    }


def services(port: str) -> str:
    """Rules of nftables that send what is for the Service to the API server on the host."""
    rule = f"ip daddr {SERVICE} tcp dport 443 dnat to {GATEWAY}:{port}"
    chains = [
        f"chain {hook} {{ type nat hook {hook} priority -100; {rule}; }}"
        for hook in ("prerouting", "output")
    ]
    return "\n".join(["table ip gpushare {", *chains, "}", ""])


def _tar(folder: Path, texts: Mapping[str, str]) -> Path:
    root = folder / "root"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    tar = folder / "files.tar"
    with tarfile.open(tar, "w") as archive:
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            archive.add(file, str(file.relative_to(root)), filter=_owned_by_root)
    return tar


def _port(config: Mapping[str, Any]) -> str:
    server: str = config["clusters"][0]["cluster"]["server"]
    return server.rpartition(":")[2]


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    if info.name.startswith("root/"):
        info.mode = 0o600
    return info
