"""CDI devices: environment and mounts that a pod's own specification cannot replace.

kubelet appends a container's own environment to what Allocate answered, so a value of the pod would
win. A container runtime applies CDI edits last: there ours wins. One CDI device stands
for an amount on certain GPUs; containers with the same grant share it, so the number of spec files
is bounded by the different grants, and kubelet's list of devices is enough to write them again.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.isolation.mps_grant import HostMount
from gpucore.wire.names import ENV_VISIBLE_DEVICES

CDI_KIND: Final = "gpushare.io/share"
CDI_VERSION: Final = "0.5.0"
_KUBELET: Final = (1, 28)
_CERTAIN_KUBELET: Final = (1, 29)
_RUNTIMES: Final[Mapping[str, tuple[int, int]]] = {"containerd": (1, 7), "cri-o": (1, 28)}
_CERTAIN: Final[Mapping[str, tuple[int, int]]] = {"containerd": (2, 0), "cri-o": (1, 28)}


class Support(StrEnum):
    """What a node's runtime makes of CDI devices that a device plugin names."""

    NONE = "none"
    POSSIBLE = "possible"
    """containerd 1.7 applies them where its configuration has ``enable_cdi = true``, and kubelet
    1.28 passes them on with the feature gate DevicePluginCDIDevices."""
    CERTAIN = "certain"


class CdiDevice(msgspec.Struct, frozen=True):
    """One CDI device and the file that describes it.

    Attributes:
        name: of the device within :data:`CDI_KIND`.
        spec: the file, as JSON.
        visible: the GPUs that its containers see.
    """

    name: str
    spec: bytes
    visible: frozenset[str]

    @property
    def qualified_name(self) -> str:
        """As a device plugin names it."""
        return f"{CDI_KIND}={self.name}"


def support_of(kubelet: str, runtime: str) -> Support:
    """From ``v1.36.2`` and ``containerd://2.1.9``, as in a Node's ``status.nodeInfo``."""
    name, _, version = runtime.partition("://")
    oldest = _RUNTIMES.get(name)
    if oldest is None or _version(kubelet) < _KUBELET or _version(version) < oldest:
        return Support.NONE
    certain = _version(kubelet) >= _CERTAIN_KUBELET and _version(version) >= _CERTAIN[name]
    return Support.CERTAIN if certain else Support.POSSIBLE


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"v?([0-9]{1,6})\.([0-9]{1,6})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def cdi_device(
    resource: Resource,
    amounts: Mapping[str, int],
    envs: Mapping[str, str],
    mounts: Collection[HostMount],
    *,
    core_follows: bool,
    bursts: bool = False,
) -> CdiDevice:
    """The device of a grant of ``amounts`` by GPU UUID.

    The name depends on the grant and not on the values: kubelet's record of a container names
    the same device after the plugin was updated.
    """
    more = ["bursts"] if bursts else []
    key = msgspec.json.encode([resource, sorted(amounts.items()), core_follows, *more])
    name = f"{resource}-{hashlib.sha256(key).hexdigest()[:32]}"
    spec = cdi_spec(CDI_KIND, {name: (envs, mounts)})
    visible = frozenset(envs.get(ENV_VISIBLE_DEVICES, "").split(","))
    return CdiDevice(name, spec, visible)


def cdi_spec(
    kind: str, devices: Mapping[str, tuple[Mapping[str, str], Collection[HostMount]]]
) -> bytes:
    """A CDI file: environment and mounts of each device of ``kind``, by the device's name."""
    entries = [
        {"name": name, "containerEdits": _edits(envs, mounts)}
        for name, (envs, mounts) in devices.items()
    ]
    return msgspec.json.encode({"cdiVersion": CDI_VERSION, "kind": kind, "devices": entries})


def _edits(envs: Mapping[str, str], mounts: Collection[HostMount]) -> dict[str, object]:
    edits: dict[str, object] = {"env": [f"{key}={value}" for key, value in sorted(envs.items())]}
    if mounts:
        edits["mounts"] = [_mount(each) for each in mounts]
    return edits


def _mount(mount: HostMount) -> dict[str, object]:
    access = "ro" if mount.read_only else "rw"
    options = [access, "nosuid", "nodev", "bind"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}


class _Edits(msgspec.Struct):
    env: list[str] = []


class _Device(msgspec.Struct, rename="camel"):
    name: str
    container_edits: _Edits


class _Spec(msgspec.Struct):
    devices: list[_Device]


def read_device(spec: bytes) -> CdiDevice | None:
    """The device of a file that an earlier plugin wrote; ``None`` for anything else."""
    try:
        (device,) = msgspec.json.decode(spec, type=_Spec).devices
    except (msgspec.MsgspecError, ValueError):
        return None
    envs = dict(each.partition("=")[::2] for each in device.container_edits.env)
    return CdiDevice(device.name, spec, frozenset(envs.get(ENV_VISIBLE_DEVICES, "").split(",")))


def orphans(
    devices: Mapping[str, CdiDevice],
    used: Collection[str],
    initialized: Collection[frozenset[str]],
) -> set[str]:
    """Devices that no container can name any more.

    Args:
        devices: all of them, by name.
        used: names that running or recently granted containers have.
        initialized: GPUs of each live pod whose init containers requested some: older kubelets do
            not list what those got, and they may start again.
    """
    return {
        name
        for name, device in devices.items()
        if name not in used and not any(device.visible <= gpus for gpus in initialized)
    }
