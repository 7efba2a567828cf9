"""Groups in random cycles of kube-scheduler, while plans of their namespace take long at times."""

import random

import msgspec
from corebuilders import assumed, on_node, pod
from test_group_cycles import NODES, Bench, member

from gpucore.gang.group_cycles import RELEASE_SECONDS
from gpucore.model import AllocationState, Placement
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.units import NodeName
from gpucore.wire.pod_groups import PodGroup

RUNS = 200
CYCLES = 12


class Group:
    """A group of one to four pods, of which some number has to be placed together."""

    def __init__(self, bench: Bench, name: str, dice: random.Random) -> None:
        self.bench, self.name, self.dice = bench, name, dice
        count = dice.randint(1, 4)
        self.minimum = dice.randint(1, count)
        bench.groups.on_update(PodGroup("default", name, self.minimum))
        sizes = (dice.choice((2, 3, 4, 6, 8)) for _ in range(count))
        self.waiting = bench.come(*(member(number, mem, name) for number, mem in enumerate(sizes)))
        self.bound = 0

    def cycle(self) -> None:
        """Filter calls for all pods that wait, and binds if enough of them have a node."""
        for key in self.bench.beside(self.name):
            self.bench.cycles.release(key)
        answered = [(one, node) for one in self.waiting if (node := self.called(one))]
        if len(answered) + self.bound < self.minimum:
            return
        self.bench.wait(self.dice.choice((0, 0, 1, RELEASE_SECONDS, 10)))
        for one, node in answered:
            self.other_comes()
            if isinstance(self.bench.bind(one, node), Placement):
                placed = msgspec.structs.replace(one.pod, node=NodeName(node))
                self.bench.state.gangs.note(placed)
                self.waiting.remove(one)
                self.bound += 1

    def other_comes(self) -> None:
        """A pod of no group takes free units of some node for a while, at times."""
        book = self.bench.state.ledger
        other, node = pod("other", 3), self.dice.choice(NODES)
        book.pod_gone(other.uid)
        if self.dice.random() < 0.3 and isinstance(on_node(book, node, other), Placement):
            assumed(book, node, other)

    def called(self, one: UnscheduledPod) -> str:
        """The node for a pod, which is offered most nodes, after a pause at times."""
        if self.dice.random() < 0.2:
            self.bench.plans_took(self.dice.choice((1, 3, 5.5, 16)))
        if self.dice.random() < 0.1:
            self.bench.wait(RELEASE_SECONDS)
        offered = tuple(name for name in NODES if self.dice.random() < 0.85)
        return self.bench.node_of(one, offered or NODES)

    def is_whole(self) -> bool:
        """No pod is bound, or as many have nodes and places as the group needs."""
        held = self.bench.state.ledger.gang("default", f"podgroup/{self.name}")
        reserved = sum(one.state is AllocationState.RESERVED for one in held)
        return not self.bound or self.bound + reserved >= self.minimum


def test_no_group_is_placed_in_part_while_its_namespace_gets_no_new_plans() -> None:
    """After each cycle each group has all places that it needs or is not bound at all."""
    bound = 0
    for seed in range(RUNS):
        dice, bench = random.Random(seed), Bench(1)
        groups = [Group(bench, name, dice) for name in "gh"]
        for _ in range(CYCLES):
            dice.choice(groups).cycle()
            assert all(group.is_whole() for group in groups), seed
            for node_info in bench.state.ledger.nodes().values():
                assert not node_info.overfull, seed
            bench.wait(dice.choice((0, 0.5, 2, 30)))
        bound += sum(group.bound for group in groups)
    assert bound > RUNS
