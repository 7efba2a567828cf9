"""The extender's pods, the flags that they run with, and the topology sets that they mount."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.model.links import TopologyError
from gpucore.topology.static import StaticSets, decode_static
from gpucore.wire.configmaps import decode_config_map
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.rawpods import RawPodSpec, spec_of, status_of
from gpuinspect.cluster.release import KUBE_SYSTEM, release_namespaces
from gpuinspect.cluster.snapshots import Snapshot
from gpukube.plugin_pods import COMPONENT

EXTENDER: Final = "extender"
"""Name of the container."""
_READS_CONFIG_MAPS: Final = "unhealthy-configmaps"
PROGRAMS: Final = frozenset({"scheduler", "extender"})
"""Values of the label :data:`COMPONENT` of their pods."""


def extenders(snapshot: Snapshot) -> list[tuple[Pod, msgspec.Raw]]:
    """The extenders: those that are ready first, then those on a node, the oldest of each first.

    Where the namespace of the release is known, a pod of another one is none. A cluster without our
    webhook and device plugins does not show it: there the order alone keeps others back.
    """
    found = list(_named_so(snapshot))
    trusted = release_namespaces(snapshot) if found else ()
    if trusted:
        found = [each for each in found if each[0].namespace in {*trusted, KUBE_SYSTEM}]
    return sorted(found, key=_order)


def extenders_down(snapshot: Snapshot) -> tuple[str, ...]:
    """The extenders' pods, where there are some and none is ready."""
    found = extenders(snapshot)
    if any(status_of(raw).by_type.get("Ready") == "True" for _, raw in found):
        return ()
    return tuple(f"{pod.namespace}/{pod.name}" for pod, _ in found)


def extender_namespaces(snapshot: Snapshot) -> frozenset[str]:
    """Where the configurations of schedulers are read: beside the extenders, and kube-system."""
    trusted = release_namespaces(snapshot)
    if not trusted:
        trusted = frozenset(pod.namespace for pod, _ in extenders(snapshot)[:1])
    return trusted | {KUBE_SYSTEM}


def _order(each: tuple[Pod, msgspec.Raw]) -> tuple[bool, bool, str, str, str]:
    pod, raw = each
    ready = status_of(raw).by_type.get("Ready") == "True"
    return (not ready, not pod.node, pod.creation, pod.namespace, pod.name)


def _named_so(snapshot: Snapshot) -> Iterator[tuple[Pod, msgspec.Raw]]:
    for pod, raw in snapshot.raw_pods():
        ours = pod.labels.get(COMPONENT) in PROGRAMS
        live = not pod.finished and not pod.terminating
        if ours and live and any(box.name == EXTENDER for box in pod.containers):
            yield pod, raw


def flags_of(raw: msgspec.Raw, container: str = EXTENDER) -> dict[str, str]:
    """Flags of a container; of a repeated one the last, as the program reads them."""
    words = [word for box in spec_of(raw).named(container) for word in box.words]
    return dict(_flags(words))


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            following = words[place + 1] if place + 1 < len(words) else ""
            yield name, value if equals else following


def reads_config_maps(raw: msgspec.Raw) -> bool:
    """Whether the extender in a pod reads the ConfigMaps that list unhealthy GPUs."""
    return _READS_CONFIG_MAPS in flags_of(raw)


class MountedSets(msgspec.Struct, frozen=True):
    """The configured sets by node type, and where they were read.

    Attributes:
        static: empty where they cannot be read.
        source: where they were read, for messages.
    """

    static: Mapping[str, StaticSets] = {}
    source: str = "its configured sets cannot be read"


def mounted_sets(snapshot: Snapshot, pod: Pod, raw: msgspec.Raw, path: str) -> MountedSets:
    """The sets in the file that the extender in a pod reads.

    Args:
        snapshot: the cluster, with the ConfigMaps of the extender's namespace.
        path: of the file in it.
    """
    folder, _, key = path.rpartition("/")
    name = _mounted(spec_of(raw), folder)
    text = config_map(snapshot, pod.namespace, name).get(key) if name else None
    try:
        static = decode_static(text) if text is not None else None
    except TopologyError:
        static = None
    if static is None:
        return MountedSets()
    return MountedSets(static, f"sets of ConfigMap {pod.namespace}/{name}")


def _mounted(spec: RawPodSpec, folder: str) -> str:
    """Name of the ConfigMap that is mounted at ``folder``; empty for none."""
    mounts = [mount for box in spec.named(EXTENDER) for mount in box.volume_mounts or ()]
    names = {mount.name for mount in mounts if mount.mount_path.rstrip("/") == folder}
    volumes = [volume for volume in spec.volumes or () if volume.name in names]
    return next((volume.config_map.name for volume in volumes if volume.config_map), "")


def config_map(snapshot: Snapshot, namespace: str, name: str) -> Mapping[str, str]:
    """Data of a ConfigMap; empty where it was not read."""
    maps = map(decode_config_map, snapshot.all("ConfigMap"))
    return next(
        (each.data for each in maps if (each.namespace, each.name) == (namespace, name)), {}
    )
