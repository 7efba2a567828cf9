"""How many GPUs and nodes are in use where kube-scheduler compares all nodes, few, or both.

python libs/gpucore/bench/opened.py

A thousand nodes of 8 GPUs of 80 units. Pods of mixed sizes come and end at random until a part of
all units is allocated, and go on to while the GPUs and nodes in use are counted. The policy is
binpack, decided by the code that decides for a cluster; kube-scheduler's sample is the first
hundred nodes that fit, from where it stopped for the pod before.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from itertools import chain

import msgspec
from fleet import node_object

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, ContainerRequest, Placement, PodRequest
from gpucore.scheduling.cluster_policy import LEAST_EVALUATED
from gpucore.scheduling.plain_shares import ANY_SHARE, share_ratings
from gpucore.scheduling.policy import place
from gpucore.units import PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import decode_node

NODES, GPUS, UNITS = 1000, 8, 80
SIZES = (4, 8, 10, 16, 20, 24, 40, 60)
LEVELS = (5, 20, 50, 80, 95)
BURST, QUIET, EXACT = 300, 300, 33
"""Pods of a burst, pods between two bursts, and pods of a burst that all nodes are compared for."""


class Cluster:
    """Nodes with pods; the ratings of each node by amount are kept until it changes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        ledger = Ledger(DEFAULT_NAMES)
        for number in range(NODES):
            ledger.node_changed(decode_node(msgspec.json.encode(node_object(number))))
        self.nodes: Sequence[NodeInfo] = list(ledger.nodes().values())
        self._ratings = [share_ratings(node, ANY_SHARE, "binpack") for node in self.nodes]
        self._start = 0
        self.pods: list[tuple[int, PodUid, int]] = []
        self.units = self._count = 0

    def arrive(self, *, sampled: bool) -> None:
        """A pod of a random size is placed; one that fits nowhere is not counted."""
        size = self.random.choice(SIZES)
        ratings = [each[size] for each in self._ratings]
        index = self._sampled(ratings) if sampled else ratings.index(max(ratings))
        if ratings[index] < 0:
            return
        request = PodRequest((ContainerRequest(size),), mem=size)
        placement = place(self.nodes[index], request, "binpack")
        assert isinstance(placement, Placement)
        self._count += 1
        uid = PodUid(str(self._count))
        one = Allocation(uid, "n", str(uid), AllocationState.CONFIRMED, placement)
        self._change(index, lambda node: node.put(one))
        self.pods.append((index, uid, size))
        self.units += size

    def end(self) -> None:
        """A random pod ends."""
        place_ = self.random.randrange(len(self.pods))
        self.pods[place_], self.pods[-1] = self.pods[-1], self.pods[place_]
        index, uid, size = self.pods.pop()
        self._change(index, lambda node: node.drop(uid))
        self.units -= size

    def opened(self) -> tuple[int, int]:
        """GPUs and nodes in use."""
        used = [sum(gpu.used > 0 for gpu in node.devices.values()) for node in self.nodes]
        return sum(used), sum(map(bool, used))

    def _sampled(self, ratings: list[float]) -> int:
        best, seen = self._start, 0
        for step in chain(range(self._start, NODES), range(self._start)):
            if ratings[step] >= 0:
                best = step if ratings[step] > ratings[best] else best
                seen += 1
                if seen == LEAST_EVALUATED:
                    self._start = (step + 1) % NODES
                    break
        return best

    def _change(self, index: int, change: Callable[[NodeInfo], object]) -> None:
        change(self.nodes[index])
        self._ratings[index] = share_ratings(self.nodes[index], ANY_SHARE, "binpack")


def sampled(way: str, number: int) -> bool:
    """Whether the pod of this number is placed on a sample."""
    place_ = number % (BURST + QUIET)
    return way == "100 nodes" or (way == "bursts" and EXACT <= place_ < BURST)


def run(way: str, level: int, seed: int, turnover: int) -> tuple[float, float]:
    """Mean GPUs and nodes in use, after every pod was replaced about ``turnover`` times."""
    cluster, number = Cluster(seed), 0
    wanted = NODES * GPUS * UNITS * level // 100
    while cluster.units < wanted:
        cluster.arrive(sampled=sampled(way, number))
        number += 1
    samples = list[tuple[int, int]]()
    rounds = turnover * len(cluster.pods)
    for each in range(rounds):
        cluster.end()
        while cluster.units < wanted:
            cluster.arrive(sampled=sampled(way, number))
            number += 1
        if each > rounds // 2 and each % 50 == 0:
            samples.append(cluster.opened())
    return sum(gpus for gpus, _ in samples) / len(samples), sum(n for _, n in samples) / len(
        samples
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turnover", type=int, default=2)
    parser.add_argument("--level", type=int, action="append")
    options = parser.parse_args()
    print("| allocated | way | GPUs in use | nodes in use |\n|---|---|---|---|")
    for level in options.level or LEVELS:
        base = run("all", level, 1, options.turnover)
        print(f"| {level} % | all nodes | {base[0]:.0f} | {base[1]:.0f} |", flush=True)
        for way in ("bursts", "100 nodes"):
            gpus, nodes = run(way, level, 1, options.turnover)
            more = f"{100 * (gpus / base[0] - 1):+.1f} %", f"{100 * (nodes / base[1] - 1):+.1f} %"
            print(f"| {level} % | {way} | {more[0]} | {more[1]} |", flush=True)


if __name__ == "__main__":
    main()
