"""What-if names the node and the GPUs that pods get in the cluster, kubelet's part included.

``GPUSHARE_WHATIF_PODS`` sets the number of random pods, half of them one by one, half of them in
Deployments. 200 take minutes, so `make test` leaves this case to the control plane of processes;
`make e2e MARK=ondemand CASES=e2e/cases/test_whatif.py` runs it.
"""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from environments.case import Case
from environments.environment import Environment
from environments.waiting import PATIENCE_SECONDS, until
from environments.workloads import Object

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.ondemand,
    pytest.mark.timeout(3600),
]

Place = tuple[str, tuple[int, ...]]
"""Node and GPUs of a pod."""
COUNT: Final = int(os.environ.get("GPUSHARE_WHATIF_PODS", "200"))
POLICIES: Final = ("", "binpack", "spread", "fragmentation")
SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16)
MOST_PODS: Final = 24
"""Of a case at a time: more and kubelet, not the scheduler, is what the case waits for."""
ONE_BY_ONE, DEPLOYMENTS = 0.95, 0.90
ALLOCATION: Final = "scheduler.framework.gpushare.allocation"


class Manifests:
    """Random pods and Deployments of a case: sizes, policies, compute."""

    def __init__(self, case: Case, seed: int) -> None:
        self._case = case
        self._random = random.Random(seed)

    def pod(self, name: str) -> Object:
        """A pod that an empty GPU of 16 units has room for."""
        item = self._case.pod(name, self._random.choice(SIZES))
        self._vary(item)
        return item

    def deployment(self, name: str, replicas: int) -> Object:
        """Equal pods that a controller creates."""
        item = self._case.deployment(name, self._random.choice(SIZES), replicas=replicas)
        self._vary(item["spec"]["template"])
        return item

    def replicas(self) -> int:
        """Of a Deployment."""
        return self._random.randint(2, 6)

    def some(self, names: Sequence[str]) -> list[str]:
        """About half of these."""
        return self._random.sample(names, (len(names) + 1) // 2)

    def _vary(self, pod: Object) -> None:
        pick = self._random
        if pick.random() < 0.2:
            limits = pod["spec"]["containers"][0]["resources"]["limits"]
            limits["aliyun.com/gpu-core.percentage"] = str(pick.choice((10, 50, 100)))
        if policy := pick.choice(POLICIES):
            pod["metadata"]["annotations"] = {"gpushare/policy": policy}


def predicted(environment: Environment, manifest: Object, folder: Path) -> list[Any]:
    """The answers of `gpushare whatif` for the pods of a manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    done = subprocess.run(
        ["gpushare", "whatif", "-f", str(path), "-o", "json"],
        env=environment.kubectl.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr  # 1: a pod does not fit
    items: list[Any] = json.loads(done.stdout)["items"]
    return items


def place_of(answer: Any) -> Place:
    """Node and GPUs of an answer."""
    return answer["node"], tuple(sorted(map(int, answer["gpus"])))


def found(pod: Object) -> Place:
    """Node and GPUs that a running pod was given."""
    allocation = json.loads(pod["metadata"]["annotations"][ALLOCATION])
    gpus = {int(index) for container in allocation.values() for index in container}
    return pod["spec"]["nodeName"], tuple(sorted(gpus))


class World:
    """The case's pods as they come and go."""

    def __init__(self, environment: Environment, case: Case, folder: Path) -> None:
        self._environment = environment
        self._case = case
        self._folder = folder
        self.make = Manifests(case, 18)

    def create(self, manifest: Object, names: Sequence[str]) -> tuple[int, int]:
        """Ask, create, compare: the pods placed as predicted, and the pods predicted to fit."""
        answers = predicted(self._environment, manifest, self._folder)
        if not all(answer["fits"] for answer in answers):
            return 0, 0
        self._case.kubectl.apply(manifest)
        name = manifest["metadata"]["name"]
        pods: list[Object] = []

        def running() -> bool:
            pods[:] = self._case.environment.objects.pods(self._case.name, labels=f"app={name}")
            phases = [pod["status"]["phase"] for pod in pods]
            return phases == ["Running"] * len(names)

        until(f"the pods of {name} running", running)
        expected, actual = Counter(map(place_of, answers)), Counter(map(found, pods))
        if expected != actual:
            print(f"{manifest}: what-if {expected}, cluster {actual}")
        return (expected & actual).total(), len(names)

    def make_room(self, kind: str, most: int) -> None:
        """Delete half of what was created when it has become much, or too much to fit."""
        items = self._case.kubectl.json("get", kind, "-n", self._case.name)["items"]
        names = [item["metadata"]["name"] for item in items]
        if len(names) < most:
            return
        gone = self.make.some(names)
        where = ("-n", self._case.name)
        self._case.kubectl("delete", kind, *gone, *where, "--cascade=foreground", "--wait=true")

        def left() -> bool:
            apps = {pod["metadata"]["labels"]["app"] for pod in self._case.pods()}
            return not apps & set(gone)

        until("their pods gone", left)


@pytest.fixture
def world(environment: Environment, case: Case, tmp_path: Path) -> World:
    """A case that evaluates what-if before it creates."""
    return World(environment, case, tmp_path)


def test_pods_that_come_one_by_one_go_where_what_if_places_them(world: World) -> None:
    """Random sizes, compute and policies on whatever the pods before left."""
    right = created = number = 0
    while created < COUNT // 2:
        name, number = f"one-{number:03}", number + 1
        agreed, pods = world.create(world.make.pod(name), [name])
        right, created = right + agreed, created + pods
        world.make_room("pod", MOST_PODS if pods else 1)
    print(f"one by one: {right} of {created}")
    assert right >= ONE_BY_ONE * created


def test_pods_of_deployments_go_where_what_if_places_them(world: World) -> None:
    """The pods of a Deployment come at once, from its controller."""
    right = created = number = 0
    while created < COUNT // 2:
        name, replicas, number = f"many-{number:03}", world.make.replicas(), number + 1
        names = [f"{name}-{replica}" for replica in range(replicas)]
        agreed, pods = world.create(world.make.deployment(name, replicas), names)
        right, created = right + agreed, created + pods
        world.make_room("deployment", MOST_PODS // 4 if pods else 1)
    print(f"Deployments: {right} of {created}")
    assert right >= DEPLOYMENTS * created
