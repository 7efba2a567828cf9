"""The sets of the static topology policy as the extender's pod mounts them from a ConfigMap."""

from collections.abc import Mapping

import msgspec

from gpucore.model.links import TopologyError
from gpucore.scheduling.cluster_policy import NO_SETS
from gpucore.topology.static import StaticSets, decode_static
from gpuinspect.cluster.snapshots import Snapshot


class MountedSets(msgspec.Struct, frozen=True):
    """The configured sets by node type, and where they were read.

    Attributes:
        static: empty where they cannot be read.
        source: where they were read, for messages.
    """

    static: Mapping[str, StaticSets] = NO_SETS
    source: str = "its configured sets cannot be read"


class _Mount(msgspec.Struct, rename="camel"):
    name: str = ""
    mount_path: str = ""


class _Box(msgspec.Struct, rename="camel"):
    name: str = ""
    volume_mounts: list[_Mount] | None = None


class _Source(msgspec.Struct):
    name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    name: str = ""
    config_map: _Source | None = None


class _Spec(msgspec.Struct):
    containers: list[_Box] | None = None
    volumes: list[_Volume] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec | None = None
    data: Mapping[str, str] | None = None


def mounted_sets(
    snapshot: Snapshot, raw_pod: msgspec.Raw, container: str, path: str
) -> MountedSets:
    """The sets in the file that a container reads.

    Args:
        snapshot: the cluster, with the ConfigMaps of the extender's namespace.
        raw_pod: the extender's pod.
        container: name of its container.
        path: of the file in it.
    """
    pod = msgspec.json.decode(raw_pod, type=_Object)
    folder, _, key = path.rpartition("/")
    name = _config_map(pod.spec or _Spec(), container, folder)
    text = _text(snapshot, pod.metadata.namespace, name, key) if name else None
    try:
        static = decode_static(text) if text is not None else None
    except TopologyError:
        static = None
    if static is None:
        return MountedSets()
    return MountedSets(static, f"sets of ConfigMap {pod.metadata.namespace}/{name}")


def _config_map(spec: _Spec, container: str, folder: str) -> str:
    """Name of the ConfigMap that is mounted at ``folder``; empty for none."""
    boxes = [box for box in spec.containers or () if box.name == container]
    mounts = [mount for box in boxes for mount in box.volume_mounts or ()]
    names = {mount.name for mount in mounts if mount.mount_path.rstrip("/") == folder}
    volumes = [volume for volume in spec.volumes or () if volume.name in names]
    return next((volume.config_map.name for volume in volumes if volume.config_map), "")


def _text(snapshot: Snapshot, namespace: str, name: str, key: str) -> str | None:
    for raw in snapshot.all("ConfigMap"):
        found = msgspec.json.decode(raw, type=_Object)
        if (found.metadata.namespace, found.metadata.name) == (namespace, name):
            return (found.data or {}).get(key)
    return None
