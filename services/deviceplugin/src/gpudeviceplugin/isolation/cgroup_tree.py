"""The cgroups of this node, as the plugin sees them."""

from pathlib import Path

from gpucore.node.isolation.cgroups import pod_cgroups, pods_cgroups
from gpucore.units import PodUid


class CgroupTree:
    """The mount of cgroup v2.

    Args:
        root: where it is; the driver takes paths below it.
        parent: kubelet's ``cgroupRoot``.
    """

    def __init__(self, root: Path, parent: str) -> None:
        self._root = root
        self._parent = parent

    def pods(self) -> str:
        """The cgroup above all pods; empty where there is none, or no cgroup v2."""
        if not (self._root / "cgroup.controllers").exists():
            return ""
        return self._first(pods_cgroups(self._parent))

    def of_pod(self, uid: PodUid) -> str:
        """The cgroup of a pod; empty while kubelet has not made it."""
        return self._first(pod_cgroups(uid, self._parent))

    def populated(self, cgroup: str) -> bool:
        """Processes run in the cgroup or below it; true where that cannot be read."""
        try:
            return "populated 0" not in (Path(cgroup) / "cgroup.events").read_text().splitlines()
        except FileNotFoundError:  # the cgroup has gone
            return False
        except OSError:
            return True

    def _first(self, paths: tuple[str, ...]) -> str:
        there = (self._root / path for path in paths)
        return next((str(path) for path in there if path.is_dir()), "")
