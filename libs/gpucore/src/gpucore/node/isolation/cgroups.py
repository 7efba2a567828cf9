"""Where the cgroup of a pod is: the paths that kubelet gives it, below the mount of cgroup v2.

kubelet names the cgroup ``kubepods``, the QoS class (none for guaranteed pods) and ``pod<uid>``,
below its own ``cgroupRoot``. With the driver ``cgroupfs`` these are directories. With ``systemd``
each is a slice whose name repeats those above it, and a dash within a name becomes an underscore.
"""

import re
from collections.abc import Sequence
from typing import Final

from gpucore.units import PodUid

KUBEPODS: Final = "kubepods"
QOS_CLASSES: Final = ("", "burstable", "besteffort")
"""As kubelet writes them in a path; a guaranteed pod is directly below ``kubepods``."""
_UID: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")


def cgroupfs_path(names: Sequence[str]) -> str:
    """The path of a cgroup with kubelet's driver ``cgroupfs``."""
    return "/".join(names)


def systemd_path(names: Sequence[str]) -> str:
    """The path of a cgroup with kubelet's driver ``systemd``."""
    escaped = [name.replace("-", "_") for name in names]
    return "/".join(f"{'-'.join(escaped[: end + 1])}.slice" for end in range(len(escaped)))


def pods_cgroups(parent: str = "") -> tuple[str, ...]:
    """Paths of the cgroup above all pods, by each driver of kubelet.

    Args:
        parent: kubelet's ``cgroupRoot``.
    """
    return _both([*_names(parent), KUBEPODS])


def pod_cgroups(uid: PodUid, parent: str = "") -> tuple[str, ...]:
    """The paths that the cgroup of a pod may have, by QoS class and by each driver of kubelet.

    A uid is in one of them at most, so the one that exists is the pod's. A uid that could name
    another directory has none.
    """
    if not _UID.fullmatch(uid):
        return ()
    above = [*_names(parent), KUBEPODS]
    classes = [[name] if name else [] for name in QOS_CLASSES]
    return tuple(path for each in classes for path in _both([*above, *each, f"pod{uid}"]))


def _names(parent: str) -> list[str]:
    return [name for name in parent.split("/") if name]


def _both(names: Sequence[str]) -> tuple[str, str]:
    return systemd_path(names), cgroupfs_path(names)
