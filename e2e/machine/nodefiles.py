"""The files that one run lays into the machine: how it joins the cluster, its GPUs, and a key.

They go there as a tar on a disk of their own, which the machine unpacks at every boot. So the mock
driver forgets its limits at a boot, as a driver does.
"""

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from environments import machines
from machine.qemu import ADDRESS, GATEWAY

NODE: Final = "localhost"
"""Name of the node: the one by which the API server, on this machine, reaches its kubelet."""
SERVICE: Final = "10.96.0.1"
"""ClusterIP of the API server's Service; no kube-proxy runs in the machine."""
JOIN: Final = "/etc/gpushare/join.yaml"
DISCOVERY: Final = "/etc/gpushare/discovery.conf"
_PRIVATE: Final = ("root/", JOIN.removeprefix("/"))
KUBELET_FLAGS: Final = {
    "node-ip": ADDRESS,
    "node-labels": "gpushare=true,gputopology=true",
}


def write_key(folder: Path, key: str) -> Path:
    """The tar with nothing but the key, in ``folder``: kubelet does not start."""
    return _tar(folder, {"root/.ssh/authorized_keys": key})


def write(
    folder: Path,
    *,
    machine: str,
    key: str,
    port: int,
    texts: Mapping[str, str],
    more: Mapping[str, Path] | None = None,
) -> Path:
    """The tar, in ``folder``.

    Args:
        folder: of this run.
        machine: the mock machine whose GPUs it has.
        key: public, of who may log in as root.
        port: of the API server on the host.
        texts: other files by their paths in the machine.
        more: the same, as files, and with paths without the first slash.
    """
    for name, file in (more or {}).items():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / "root" / name)
    machines.write_files(folder / "root" / machines.IN_NODE.removeprefix("/"), machine)
    written = {
        "etc/gpushare/services.nft": services(port),
        "root/.ssh/authorized_keys": key,
    }
    return _tar(folder, written | {name.removeprefix("/"): texts[name] for name in texts})


def services(port: int) -> str:
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


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    if info.name.startswith(_PRIVATE):
        info.mode = 0o600
    return info
