"""A cluster that lives at random, a ledger that watches it, and plain arithmetic that checks it.

Events are lost, repeated and delayed until a relist; nodes come, go and change; annotations are
corrupted; binds fail, succeed or are never heard of again. After every step the ledger's books must
equal sums that are worked out from scratch.
"""

from collections.abc import Callable

import msgspec
from corebuilders import NAMES, bound, legacy_node, make_gpus, pod, pod_request, share_node
from corebuilders import ledger as built
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from ledgerchecks import NODE_NAMES, CheckedLedger

from gpucore.accounting.ledger import Ledger
from gpucore.model import Allocation, Gpu, Inventory, IsolationMode, Placement
from gpucore.scheduling.policy import place
from gpucore.units import GIB, GpuIndex, GpuUuid, MemoryUnit, NodeName, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod

TTL = 10
HALF = MemoryUnit(512)
SIZES = st.lists(st.integers(0, 6), max_size=3)
HEARD = st.sampled_from([True, True, False])


class LedgerMachine(CheckedLedger):
    """One cluster and the ledger under test."""

    def __init__(self, make: Callable[..., Ledger] = Ledger) -> None:
        super().__init__(make)
        self._tell_node(share_node(NODE_NAMES[0], make_gpus(6, 6, 4), whole=True), heard=True)
        self._tell_node(legacy_node(NODE_NAMES[1], 14, 2), heard=True)
        for name, mem in (("a", 2), ("b", 4), ("c", 1)):
            self._create(pod(name, mem), heard=True)
        # Few histories come to a nomination that is written: every one begins with one.
        self.extender_nominates(pick=2, name=NODE_NAMES[0])
        self.nomination_is_written(pick=0, heard=True)
        assert self.nominated

    # The watch, which may lose an event; the expectation follows what was delivered.

    def _tell_pod(self, changed: Pod, *, heard: bool) -> None:
        self.pods[changed.uid] = changed
        if heard:
            self.book.pod_changed(changed)
            self._expect(changed)

    def _expect(self, changed: Pod) -> None:
        allocation = allocation_of(changed, NAMES)
        if allocation is None and not changed.node and not changed.finished:
            self._expect_nomination(changed)
            return
        self.assumed.pop(changed.uid, None)
        self.allocations.pop(changed.uid, None)
        if allocation is not None:
            self.allocations[changed.uid] = allocation

    def _expect_nomination(self, changed: Pod) -> None:
        """A pod without a node loses its nomination when deleted, or shown with another one."""
        written = self.nominated.get(changed.uid)
        if written is None or changed.uid not in self.assumed:
            return
        shown = written >= 0 and int(changed.resource_version or 0) >= written
        elsewhere = changed.nominated != self.assumed[changed.uid].placement.node
        if changed.terminating or (shown and elsewhere):
            del self.assumed[changed.uid]

    def _some(self, pick: int, pods: list[Pod]) -> Pod | None:
        return pods[pick % len(pods)] if pods else None

    def _live(self, *, on_node: bool) -> list[Pod]:
        return [p for p in self.pods.values() if bool(p.node) == on_node and not p.finished]

    # Nodes.

    @rule(
        name=st.sampled_from(NODE_NAMES),
        sizes=SIZES,
        unit=st.sampled_from([GIB, HALF]),
        sick=st.sets(st.integers(0, 2), max_size=1),
        kind=st.sampled_from([IsolationMode.NONE, IsolationMode.MPS]),
        mig=st.booleans(),
        labels=st.sampled_from(
            [{}, {wire_names.LABEL_OVERSELL: "2"}, {wire_names.LABEL_MAX_POD: "2"}]
        ),
        heard=HEARD,
    )
    def node_becomes(
        self,
        name: NodeName,
        sizes: list[int],
        unit: MemoryUnit,
        sick: set[int],
        *,
        kind: IsolationMode,
        labels: dict[str, str],
        mig: bool,
        heard: bool,
    ) -> None:
        """A node comes, shrinks, grows, changes its unit, loses or regains a GPU."""
        gpus = tuple(
            Gpu(
                GpuIndex(i), GpuUuid(f"G{i}"), size, healthy=i not in sick, isolation=kind,
                mig=mig and i == 0,
            )
            for i, size in enumerate(sizes)
        )  # fmt: skip
        self._tell_node(
            share_node(name, Inventory(gpus, unit), whole=True, labels=labels), heard=heard
        )

    @rule(name=st.sampled_from(NODE_NAMES), count=st.integers(0, 3), heard=HEARD)
    def node_becomes_legacy(self, name: NodeName, count: int, *, heard: bool) -> None:
        """An original plugin takes over: total and count only."""
        self._tell_node(legacy_node(name, 7 * count, count), heard=heard)

    def _tell_node(self, node: Node, *, heard: bool) -> None:
        self.nodes[node.name] = node
        if heard:
            self.known_nodes[node.name] = node
            self.book.node_changed(node)

    @rule(name=st.sampled_from(NODE_NAMES), heard=HEARD)
    def node_vanishes(self, name: NodeName, *, heard: bool) -> None:
        """A node is deleted; its pods may live on for a while."""
        self.nodes.pop(name, None)
        if heard:
            self.known_nodes.pop(name, None)
            self.book.node_gone(name)

    @rule(name=st.sampled_from(NODE_NAMES), sick=st.frozensets(st.integers(0, 2), max_size=2))
    def config_map_changes(self, name: NodeName, sick: frozenset[int]) -> None:
        """The legacy ConfigMap withdraws GPUs, or gives them back."""
        self.unhealthy[name] = frozenset(GpuIndex(i) for i in sick)
        self.book.unhealthy_changed(name, self.unhealthy[name])

    @rule()
    def nodes_are_listed(self) -> None:
        """The watch on nodes starts anew."""
        self.known_nodes = dict(self.nodes)
        self.book.relist_nodes(self.nodes.values())

    # Pods.

    @rule(
        name=st.sampled_from("ab"),
        mem=st.sampled_from([(1,), (2,), (4,), (6,), (1, 2), (0,)]),
        core=st.sampled_from([0, 40]),
        gpus=st.sampled_from([0, 0, 1, 2]),
        labels=st.sampled_from(
            [
                {},
                {NAMES.gpu_count: "2"},
                {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE},
            ]
        ),
        heard=HEARD,
    )
    def pod_is_created(
        self,
        name: str,
        mem: tuple[int, ...],
        core: int,
        gpus: int,
        labels: dict[str, str],
        *,
        heard: bool,
    ) -> None:
        """A pod comes, perhaps under a name that was used before."""
        self._create(pod(name, mem, core=core, gpus=gpus, labels=labels), heard=heard)

    def _create(self, made: Pod, *, heard: bool) -> None:
        self.serial += 1
        uid = PodUid(f"{made.name}-{self.serial}")
        self._tell_pod(msgspec.structs.replace(made, uid=uid), heard=heard)

    @precondition(lambda self: self._live(on_node=False))
    @rule(pick=st.integers(0, 9), name=st.sampled_from(NODE_NAMES))
    def extender_assumes(self, pick: int, name: NodeName) -> None:
        """A bind begins on this node or, where the pod does not fit there, on the other."""
        chosen = self._some(pick, self._live(on_node=False))
        if chosen is None or chosen.uid in self.allocations or _allocation_of(chosen) is None:
            return
        node_infos = [self.book.node(each) for each in sorted(NODE_NAMES, key=name.__ne__)]
        placements = [
            place(node_info, pod_request(chosen)) for node_info in node_infos if node_info
        ]
        for placement in placements:
            if isinstance(placement, Placement):
                standing = self.assumed.get(chosen.uid)
                nominated = self._is_nominated(chosen.uid)
                allocation = self.book.assume(chosen, placement, now_ns=self.now)
                assert standing is None or nominated or allocation == standing
                self.assumed[chosen.uid] = allocation
                self.nominated.pop(chosen.uid, None)
                return

    # Nominations.

    @precondition(lambda self: self._live(on_node=False))
    @rule(pick=st.integers(0, 9), name=st.sampled_from(NODE_NAMES))
    def extender_nominates(self, pick: int, name: NodeName) -> None:
        """A pod that is pending gets a node where it fits, and keeps what it has."""
        chosen = self._some(pick, self._live(on_node=False))
        node_info = self.book.node(name)
        if (
            chosen is None
            or node_info is None
            or chosen.terminating
            or _allocation_of(chosen) is None
        ):
            return
        placement = place(node_info, pod_request(chosen))
        if not isinstance(placement, Placement) or chosen.uid in self.allocations:
            return
        standing = self.assumed.get(chosen.uid)
        allocation = self.book.nominate(chosen, placement, now_ns=self.now)
        assert standing is None or allocation is standing
        if standing is None:
            self.assumed[chosen.uid] = allocation
            self.nominated[chosen.uid] = -1

    @precondition(lambda self: self.nominated)
    @rule(pick=st.integers(0, 9), heard=HEARD)
    def nomination_is_written(self, pick: int, *, heard: bool) -> None:
        """The API server has it, and may show it."""
        uid = list(self.nominated)[pick % len(self.nominated)]
        current = self.pods.get(uid)
        if current is None or current.node or not self._is_nominated(uid):
            return
        node = self.assumed[uid].placement.node
        self._version(current, node, heard=False)
        self.nominated[uid] = self.serial
        self.book.nomination_written(uid, str(self.serial))
        self._tell_pod(self.pods[uid], heard=heard)

    @precondition(lambda self: self._live(on_node=False))
    @rule(
        pick=st.integers(0, 9),
        name=st.sampled_from([*NODE_NAMES, NodeName("")]),
        heard=HEARD,
    )
    def somebody_else_nominates(self, pick: int, name: NodeName, *, heard: bool) -> None:
        """A scheduler clears the nomination, or writes its own."""
        chosen = self._some(pick, self._live(on_node=False))
        if chosen is not None:
            self._version(chosen, name, heard=heard)

    def _version(self, current: Pod, nominated: NodeName, *, heard: bool) -> None:
        self.serial += 1
        changed = msgspec.structs.replace(
            current, nominated=nominated, resource_version=str(self.serial)
        )
        self._tell_pod(changed, heard=heard)

    def _is_nominated(self, uid: PodUid) -> bool:
        return uid in self.nominated and uid in self.assumed

    @precondition(lambda self: self.assumed)
    @rule(pick=st.integers(0, 9), heard=HEARD, assigned=st.booleans())
    def bind_succeeds(self, pick: int, *, heard: bool, assigned: bool) -> None:
        """The API server wrote node and annotations in one go."""
        uid = list(self.assumed)[pick % len(self.assumed)]
        placement = self.assumed[uid].placement
        current = self.pods.get(uid)
        if current is None or current.node or current.finished:
            return
        node = self.known_nodes.get(placement.node)
        node_info = built(node).node(placement.node) if node else None
        inventory = node_info.inventory if node_info else None
        done = bound(current, placement, inventory or Inventory(()), assigned=assigned)
        self._tell_pod(done, heard=heard)

    @precondition(lambda self: self.assumed)
    @rule(pick=st.integers(0, 9))
    def bind_fails(self, pick: int) -> None:
        """The API server refused the bind."""
        uid = list(self.assumed)[pick % len(self.assumed)]
        assert self.book.forget(uid)
        assert not self.book.forget(uid)
        del self.assumed[uid]

    @rule(seconds=st.integers(0, 12))
    def time_passes(self, seconds: int) -> None:
        """What nobody confirmed in time expires, and nothing else."""
        self.now += seconds
        late = [
            u for u, allocation in self.assumed.items() if self.now - allocation.assume_time >= TTL
        ]
        assert sorted(self.book.expire(self.now, TTL)) == sorted(late)
        for uid in late:
            del self.assumed[uid]

    @rule(
        pick=st.integers(0, 9),
        name=st.sampled_from(NODE_NAMES),
        index=st.sampled_from(["0", "1", "2", "9", "x"]),
        heard=HEARD,
    )
    def somebody_else_binds(self, pick: int, name: NodeName, index: str, *, heard: bool) -> None:
        """Another scheduler binds a pod, with or without sense in its annotations."""
        chosen = self._some(pick, self._live(on_node=False))
        if chosen is not None:
            texts = {NAMES.mem_idx: index, NAMES.group: index}
            changed = msgspec.structs.replace(chosen, node=name, annotations=texts)
            self._tell_pod(changed, heard=heard)

    @rule(
        pick=st.integers(0, 9),
        text=st.sampled_from(['{"0":{"0":1}}', '{"0":{"1":2},"1":{"1":9}}', "{", '{"0":{"2":6}}']),
        unit=st.sampled_from(["GiB", "512MiB", "?"]),
        heard=HEARD,
    )
    def annotations_change(self, pick: int, text: str, unit: str, *, heard: bool) -> None:
        """The plugin corrects a GPU, or somebody edits what should not be edited."""
        chosen = self._some(pick, self._live(on_node=True))
        if chosen is not None:
            texts = {wire_names.V2_ALLOCATION: text, wire_names.UNIT: unit,
                     NAMES.mem_assigned: "true"}  # fmt: skip
            changed = msgspec.structs.replace(chosen, annotations=chosen.annotations | texts)
            self._tell_pod(changed, heard=heard)

    @rule(pick=st.integers(0, 9), heard=HEARD)
    def deletion_is_requested(self, pick: int, *, heard: bool) -> None:
        """A pod terminates; its containers still run."""
        chosen = self._some(pick, list(self.pods.values()))
        if chosen is not None:
            self._tell_pod(msgspec.structs.replace(chosen, terminating=True), heard=heard)

    @rule(pick=st.integers(0, 9), phase=st.sampled_from(["Running", "Failed"]), heard=HEARD)
    def phase_changes(self, pick: int, phase: str, *, heard: bool) -> None:
        """A pod runs, or fails for good."""
        chosen = self._some(pick, self._live(on_node=True) + self._live(on_node=False)[:1])
        if chosen is not None:
            self._tell_pod(msgspec.structs.replace(chosen, phase=phase), heard=heard)

    @precondition(lambda self: self.pods)
    @rule(pick=st.integers(0, 9), heard=HEARD)
    def pod_object_goes(self, pick: int, *, heard: bool) -> None:
        """The object is deleted: its containers are gone."""
        uid = list(self.pods)[pick % len(self.pods)]
        del self.pods[uid]
        if heard:
            self.book.pod_gone(uid)
            self.allocations.pop(uid, None)
            self.assumed.pop(uid, None)

    @rule(pick=st.integers(0, 9))
    def event_is_repeated(self, pick: int) -> None:
        """The last state of a pod is delivered (again, or late)."""
        chosen = self._some(pick, list(self.pods.values()))
        if chosen is not None:
            self._tell_pod(chosen, heard=True)

    @rule()
    def pods_are_listed(self) -> None:
        """The watch on pods starts anew; binds under way are not on the list yet."""
        self.book.relist_pods(self.pods.values())
        self.allocations.clear()
        for uid in self.nominated.keys() - self.pods.keys():
            self.assumed.pop(uid, None)
        for listed in self.pods.values():
            self._expect(listed)


def _allocation_of(pending: Pod) -> Allocation | None:
    return allocation_of(msgspec.structs.replace(pending, node=NodeName("n1")), NAMES)
