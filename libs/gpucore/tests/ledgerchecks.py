"""What must hold of a ledger at any time, worked out from scratch in plain arithmetic.

The machine in ``ledgermachine`` makes the history; here is only what is expected of the books.
"""

from collections.abc import Callable
from operator import itemgetter

from corebuilders import NAMES, pod, pod_request
from hypothesis.stateful import RuleBasedStateMachine, invariant

from gpucore.accounting.ledger import Ledger
from gpucore.model import Allocation, Placement
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.fit import fit
from gpucore.scheduling.policy import place
from gpucore.units import GpuIndex, MemoryUnit, NodeName, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

Books = dict[NodeName, object]
"""What the books of each node say."""

NODE_NAMES = (NodeName("n1"), NodeName("n2"))
DEMANDS = tuple(
    pod_request(requested)
    for requested in (
        pod("d1", 1),
        pod("d3", 3),
        pod("d6", 6),
        pod("dc", 2, core=60),
        pod("c", core=30),
        pod("s", 4, labels={NAMES.gpu_count: "2"}),
        pod("w", 2, labels={wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}),
        pod("m", 1, annotations={wire_names.ISOLATION: "mps"}),
        pod("g1", gpus=1),
        pod("g2", gpus=2),
    )
)


class CheckedLedger(RuleBasedStateMachine):
    """A ledger, its input, and what therefore must be in its books."""

    def __init__(self, make: Callable[..., Ledger] = Ledger) -> None:
        super().__init__()
        self.book = make(NAMES)
        self.nodes: dict[NodeName, Node] = {}
        self.pods: dict[PodUid, Pod] = {}
        self.unhealthy: dict[NodeName, frozenset[GpuIndex]] = {}
        self.known_nodes: dict[NodeName, Node] = {}
        self.allocations: dict[PodUid, Allocation] = {}
        self.assumed: dict[PodUid, Allocation] = {}
        self.nominated: dict[PodUid, int] = {}
        self._answered: Books = {}
        self._fitting: dict[NodeName, list[bool]] = {}
        self._restarted: object = None
        self.now = 0
        self.serial = 0

    @invariant()
    def one_claim_a_pod(self) -> None:
        """The ledger holds exactly what was delivered and assumed, each allocation on one node."""
        assert dict(self.book.allocations()) == self.allocations | self.assumed
        for uid, allocation in self.book.allocations().items():
            homes = [
                name
                for name, node_info in self.book.nodes().items()
                if uid in node_info.allocations
            ]
            assert homes == [allocation.placement.node]

    @invariant()
    def nominations_belong_to_pending_pods(self) -> None:
        """A reservation of a nominated pod never outlives the pod, and never overfills a GPU."""
        for uid in list(self.nominated):
            if uid not in self.assumed or uid in self.allocations:
                del self.nominated[uid]
        assert self.book.nominations().keys() == self.nominated.keys()

    @invariant()
    def books_are_sums(self) -> None:
        """Every GPU's books are the sum of the allocations on it, and free is never below zero."""
        for name, node_info in self.book.nodes().items():
            allocations = [c for c in self.book.allocations().values() if c.placement.node == name]
            unit = node_info.unit
            indexes = (
                {gpu.index for gpu in node_info.inventory.gpus} if node_info.inventory else set()
            )
            held = {
                i
                for c in allocations
                for i in (*c.placement.mem, *c.placement.core, *c.placement.group)
            }
            assert set(node_info.devices) == indexes | held
            for index, device in node_info.devices.items():
                units = sum(_in(c.placement.mem.get(index, 0), c.unit, unit) for c in allocations)
                assert device.used == units
                assert device.core_used == sum(c.placement.core.get(index, 0) for c in allocations)
                whole = any(index in c.placement.group for c in allocations)
                alone = any(c.exclusive and index in _gpus_of(c) for c in allocations)
                assert device.free == (0 if whole or alone else max(device.total - units, 0))
            assert node_info.pending == sum(_in(c.pending, c.unit, unit) for c in allocations)
            assert node_info.pending_gpus == sum(c.pending_gpus for c in allocations)

    @invariant()
    def answers_follow_the_books(self) -> None:
        """Where books have changed, the quick filter agrees with the GPUs, and none is overfilled.

        Answers are functions of the books, so those that stand are not computed again.
        """
        books = _fingerprint(self.book)
        changed = [name for name in books if books[name] != self._answered.get(name)]
        gone = self._answered.keys() - books.keys()
        self._answered = books
        for name in changed:
            self._nothing_over_full_is_offered(name)
            node_info = self.book.nodes()[name]
            self._fitting[name] = [fit(node_info, wanted) is None for wanted in DEMANDS]
        if changed or gone:
            self._aggregates_agree_with_the_gpus()

    def _aggregates_agree_with_the_gpus(self) -> None:
        """The quick filter returns the same as looking at every GPU."""
        names = [*NODE_NAMES, NodeName("unknown")]
        for each, wanted in enumerate(DEMANDS):
            fits, refused = filter_nodes(self.book, wanted, names)
            slow = [n for n in names if self.book.node(n) and self._fitting[n][each]]
            assert fits == slow
            assert list(refused) == [name for name in names if name not in fits]

    def _nothing_over_full_is_offered(self, name: NodeName) -> None:
        """What fits leaves no GPU over-full that was not so before."""
        node_info = self.book.nodes()[name]
        for wanted in DEMANDS:
            placement = place(node_info, wanted)
            if isinstance(placement, Placement):
                for index, units in placement.mem.items():
                    assert node_info.devices[index].used + units <= node_info.devices[index].total

    @invariant()
    def a_restart_gives_the_same_books(self) -> None:
        """Lists of what is known, and the reservations, make the same accounts."""
        books = _fingerprint(self.book)
        reported = [
            dict(each)
            for each in (self.known_nodes, self.unhealthy, self.allocations, self.assumed)
        ]
        if (reported, books) == self._restarted:
            return
        fresh = Ledger(NAMES)
        fresh.relist_nodes(self.known_nodes.values())
        for name, indexes in self.unhealthy.items():
            fresh.unhealthy_changed(name, indexes)
        for allocation in (*self.allocations.values(), *self.assumed.values()):
            fresh._hold(allocation)
        assert _fingerprint(fresh) == books
        self._restarted = reported, books


def _gpus_of(allocation: Allocation) -> set[GpuIndex]:
    place = allocation.placement
    return {*place.mem, *place.core, *place.group}


def _in(amount: int, theirs: MemoryUnit | None, mine: MemoryUnit | None) -> int:
    """``amount`` in my unit, as the contract converts: through MiB, rounded up."""
    if theirs is None or mine is None:
        return amount
    return -(-amount * theirs.mib // mine.mib)


def _fingerprint(book: Ledger) -> Books:
    """All that the books say, by node, in an order of its own."""
    return {
        name: (
            node_info.shape,
            sorted(
                (c.index, c.total, c.used, c.core_used, c.free, c.excess, c.crowd, c.healthy,
                 sorted(c.holders.items(), key=itemgetter(0)))
                for c in node_info.devices.values()
            ),
            (node_info.pending, node_info.pending_core, node_info.pending_gpus),
            (
            node_info.max_allocatable_memory,
            node_info.free_gpus,
            node_info.overfull,
            node_info.reserved_units(),
        ),
            (book.largest_shares[name], book.free_gpu_counts[name], book.free_units[name]),
        )
        for name, node_info in sorted(book.nodes().items())
    }  # fmt: skip
