"""A worker whose mock driver limits memory: its machine, its cgroups, and what the driver keeps.

The driver finds a pod by its cgroup in cgroup v2. Where the machine has cgroup v1, a folder on the
worker stands for the mount: the cgroups that kubelet makes for one controller of v1, and the file
by which cgroup v2 is recognized.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from environments import machines, rollouts
from environments.kind import KindEnvironment
from environments.waiting import until
from standins.allocator import allocate

ALLOCATE = Path(allocate.__file__).read_text()
"""A program for the containers of a case: it allocates GPU memory from the mock driver."""

MACHINE = "h100-r615-2x80"
V2 = "/sys/fs/cgroup"
STANDS_FOR_V2 = f"{V2}/gpushare-v2"
# kubelet's own root is a slice with one of its drivers and a directory with the other.
_STAND_IN = f"""set -eu
test -e {V2}/cgroup.controllers && {{ echo {V2}; exit; }}
mount -o remount,rw {V2}
mkdir -p {STANDS_FOR_V2}
touch {STANDS_FOR_V2}/cgroup.controllers
for each in {V2}/cpu/kube*; do
  to={STANDS_FOR_V2}/$(basename "$each")
  test -d "$to" || {{ mkdir "$to"; mount --bind "$each" "$to"; }}
done
echo {STANDS_FOR_V2}
"""


_WRONG: Final = f"{V2}/gpushare-wrong"
# The directories above all pods, so that the mode stands, and none of a pod.
_MAKE_WRONG = f"""set -eu
cd "$ROOT"
find . -maxdepth 2 -type d -name '*kubepods*' | while read -r each; do
  mkdir -p "{_WRONG}/$each"
done
test -e {_WRONG}/cgroup.controllers || touch {_WRONG}/cgroup.controllers
"""
_REMOVE_WRONG = f"""find {_WRONG} -type f -delete 2>/dev/null
find {_WRONG} -depth -type d -exec rmdir {{}} +"""


class LimitedNode(NamedTuple):
    """A worker with GPUs in mode driver.

    Attributes:
        root: the mount of cgroup v2 on the worker, or what stands for it.
    """

    environment: KindEnvironment
    name: str
    root: str

    def modes(self) -> list[str]:
        """Isolation mode of each GPU, as published."""
        annotations = self.environment.objects.node(self.name)["metadata"]["annotations"]
        inventory = json.loads(annotations.get("gpushare/inventory", '{"gpus": []}'))
        return [gpu["mode"] for gpu in inventory["gpus"]]

    def units(self) -> int:
        """Memory units of each of its equal GPUs."""
        return machines.gpus(MACHINE)[0].units

    @contextmanager
    def labelled(self, mode: str) -> Iterator[None]:
        """The node with another value of the label, for as long as the context lasts."""
        label = partial(self.environment.kubectl, "label", "node", self.name, "--overwrite")
        label(f"gpushare/isolation={mode}")
        try:
            yield
        finally:
            label("gpushare/isolation=driver")

    @contextmanager
    def misled(self) -> Iterator[None]:
        """All plugins look for the cgroups of pods in a place where there are none."""
        usual = self.environment.values
        try:
            for node in self.environment.nodes:
                self.environment.on_node(node, f"ROOT={self.root}\n{_MAKE_WRONG}")
            limits = {**usual["driverLimits"], "cgroupRoot": _WRONG}
            self.environment.install({**usual, "driverLimits": limits})
            plugins_run(self.environment)
            yield
        finally:
            self.environment.install(usual)
            plugins_run(self.environment)
            for node in self.environment.nodes:
                self.environment.on_node(node, _REMOVE_WRONG)

    def limit(self, uid: str) -> tuple[int, int] | None:
        """Soft and hard limit of a pod in GiB, as the driver has them last."""
        lines = (self.environment.folder / self.name / "state").read_text().splitlines()
        names = (f"pod{uid}", f"pod{uid.replace('-', '_')}.slice")
        entries = [line.split() for line in lines if line.endswith(names)]
        found = [words for words in entries if words[2] == "memory_limit"]
        return (int(found[-1][3]) >> 30, int(found[-1][4]) >> 30) if found else None

    def cgroup(self, uid: str) -> str:
        """The cgroup of a pod, as the driver has it."""
        lines = (self.environment.folder / self.name / "state").read_text().splitlines()
        name = uid.replace("-", "_")
        return next(line.split()[-1] for line in lines if name in line or uid in line)

    def happens(self, line: str) -> None:
        """Somebody else does something to the driver."""
        with (self.environment.folder / self.name / "state").open("a") as state:
            state.write(f"{line}\n")


@contextmanager
def limited(environment: KindEnvironment, node: str) -> Iterator[LimitedNode]:
    """The worker with a driver of r615 and all GPUs in mode driver; as before afterwards."""
    root = environment.on_node(node, _STAND_IN).strip()
    parent = environment.on_node(node, "sed -n 's/^cgroupRoot: *//p' /var/lib/kubelet/config.yaml")
    usual: dict[str, Any] = environment.values
    limits = {"enabled": True, "checkSeconds": 1, "cgroupRoot": root}
    limits["cgroupParent"] = parent.strip().strip('"')
    found = LimitedNode(environment, node, root)
    try:
        machines.write_files(environment.folder / node, MACHINE)
        for other in environment.nodes.keys() - {node}:
            environment.on_node(other, _STAND_IN)
        environment.kubectl("label", "node", node, "gpushare/isolation=driver", "--overwrite")
        environment.install({**usual, "driverLimits": limits})
        plugins_run(environment)
        until("mode driver", lambda: found.modes() == ["driver"] * 2)
        yield found
    finally:
        with ExitStack() as steps:  # all of them, whichever fails
            steps.callback(environment.wait_ready)
            steps.callback(environment.install, usual)
            steps.callback(
                machines.write_files, environment.folder / node, environment.machines[node]
            )
            steps.callback(environment.kubectl, "label", "node", node, "gpushare/isolation-")


def plugins_run(environment: KindEnvironment) -> None:
    """Wait until every node has a plugin with the values of today."""
    labels = "app.kubernetes.io/component=device-plugin"
    rollouts.wait(environment.kubectl, environment.namespace, labels=labels)
