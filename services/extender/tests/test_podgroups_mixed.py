"""PodGroups whose pods differ in requests, and are offered different nodes by kube-scheduler."""

import json
import random
from collections.abc import Iterator

import msgspec
from decoded import a_node, a_pod, state_of
from objects import Object, pod

from gpucore.gang.group_cycles import RELEASE_SECONDS
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.units import NodeName
from gpucore.wire.constraints import decode_pod
from gpucore.wire.pod_groups import PodGroup
from gpuextender.scheduling.gangs import Gangs

SECOND = 1_000_000_000
UNITS = 8
CYCLES = 6
"""Cycles of kube-scheduler after which a group counts as refused for ever."""
GROUPS = 300
A, B, C, D = (NodeName(name) for name in "abcd")


class Kind(msgspec.Struct, frozen=True):
    """Equal pods: their requests, and the nodes that pass kube-scheduler's own filters."""

    mem: int
    cpu: int
    count: int
    offered: tuple[NodeName, ...]


class Mixed:
    """A group of pods of several kinds on nodes with so many GPUs, all of which are needed."""

    def __init__(self, gpus: dict[NodeName, int], kinds: list[Kind]) -> None:
        self.now = 500 * SECOND
        nodes = [a_node(name, *[UNITS] * count) for name, count in gpus.items()]
        self.state = state_of(*nodes, clock=lambda: self.now)
        self.gangs = Gangs(self.state, Rules(), clock=lambda: self.now)
        self.state.add_event_handler(lambda _: self.gangs.groups.changed())
        self.kinds = kinds
        self.pods = list(self._pods())
        self.state.gangs.groups.on_update(PodGroup("default", "g", len(self.pods)))

    def _pods(self) -> Iterator[tuple[UnscheduledPod, tuple[NodeName, ...]]]:
        for number, kind in enumerate(self.kinds):
            for each in range(kind.count):
                item = member(f"g{number}-{each}", kind.mem, kind.cpu)
                self.state.pod_changed(decode_pod(json.dumps(item).encode()))
                yield self.state.saw(a_pod(item)), kind.offered

    def cycle(self) -> list[NodeName]:
        """kube-scheduler calls for pod after pod, and ends the cycle with the first refused one."""
        found: list[NodeName] = []
        for pending, offered in self.pods:
            nodes = self.gangs.admit(pending, offered)
            if isinstance(nodes, str) or not nodes:
                break
            found += nodes
        return found

    def placed(self) -> bool:
        """All pods have places in one of :data:`CYCLES` cycles."""
        for _ in range(CYCLES):
            if len(self.cycle()) == len(self.pods):
                return True
            self.now += int(RELEASE_SECONDS * SECOND)
            self.gangs.groups.release_ended()
        return False


def member(name: str, mem: int, cpu: int) -> Object:
    """A pod of the PodGroup ``g``."""
    item = pod(name, mem, uid=name)
    item["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cpu)}
    return item


def fits(free: dict[NodeName, list[int]], kinds: list[Kind]) -> bool:
    """Every way is tried to place all pods, one after the other."""
    if not kinds:
        return True
    kind, rest = kinds[0], kinds[1:]
    if kind.count > 1:
        rest = [msgspec.structs.replace(kind, count=kind.count - 1), *rest]
    for name in kind.offered:
        for gpu, units in enumerate(free[name]):
            if units >= kind.mem:
                free[name][gpu] -= kind.mem
                if fits(free, rest):
                    return True
                free[name][gpu] += kind.mem
    return False


def random_group(seed: int) -> tuple[dict[NodeName, int], list[Kind]]:
    """Two or three kinds of pods on two to four nodes, most of which each kind is offered."""
    dice = random.Random(seed)
    nodes = (A, B, C, D)[: dice.randint(2, 4)]
    gpus = {name: dice.randint(1, 2) for name in nodes}
    kinds = [
        Kind(
            dice.choice((2, 3, 4, 5, 8)),
            cpu,
            dice.randint(1, 3),
            tuple(sorted(dice.sample(nodes, dice.randint(1, len(nodes))))),
        )
        for cpu in range(1, dice.randint(2, 3) + 1)
    ]
    return gpus, kinds


def test_a_mixed_group_that_fits_is_placed() -> None:
    """Nearly each of many small random ones is, and none that does not fit."""
    fitting = placed = 0
    for seed in range(GROUPS):
        gpus, kinds = random_group(seed)
        fit = fits({name: [UNITS] * count for name, count in gpus.items()}, kinds)
        found = Mixed(gpus, kinds).placed()
        assert fit or not found, seed
        fitting += fit
        placed += found
    assert fitting > GROUPS / 2
    assert placed >= 0.99 * fitting, f"{placed} of {fitting}"


def test_pods_of_equal_gpu_requests_are_planned_on_the_nodes_of_their_own_kind() -> None:
    """Only node ``a`` has the CPU that one of two pods requests."""
    one, other = Kind(8, 1, 1, (A, B)), Kind(8, 16, 1, (A,))
    for kinds in ([one, other], [other, one]):
        group = Mixed({A: 1, B: 1}, kinds)
        assert group.placed()


def test_a_refused_group_is_planned_anew_by_the_offers_of_the_cycle_before() -> None:
    """The next cycle begins at once: places of the refused plan do not stand in its way."""
    group = Mixed({A: 1, B: 1}, [Kind(8, 1, 1, (A, B)), Kind(8, 16, 1, (A,))])
    assert group.cycle() == ["a"]
    assert group.cycle() == ["b", "a"]


def test_pods_that_are_offered_more_nodes_than_before_use_them() -> None:
    """Offers of an earlier cycle restrict nothing: kube-scheduler has other nodes now."""
    group = Mixed({A: 1, B: 1}, [Kind(8, 1, 1, (A,)), Kind(8, 16, 1, (A,))])
    assert group.cycle() == ["a"]
    group.pods = [(pending, (A, B)) for pending, _ in reversed(group.pods)]
    assert group.placed()
