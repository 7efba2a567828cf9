"""Two replicas that nominate, at random: no memory is nominated twice, no reservation is orphaned.

Each node has one GPU, so that the memory of a node is that of its GPU. Watches bring events late; a
new leader has heard of everything that was written before it took the Lease.
"""

import json

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from nominating import pending
from objects import Object
from replicas import SIZES, Cluster, Replica, nominate, read

from gpucore.model import Placement
from gpucore.scheduling.nominated import reserved_for_nominated
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpuextender.nomination.writes import MANAGER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FOUND_OUT = 100.0
"""Seconds after which every pause and every reservation is over."""


class Replicas(RuleBasedStateMachine):
    """Two replicas, one Lease, a scheduler that binds, clears and preempts, and users."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster, self.time, self.leader, self.serial = Cluster(), 0.0, 0, 0
        self.both = [
            Replica(self.cluster, lambda: self.time, lambda i=i: self.leader == i)  # type: ignore[misc]
            for i in range(2)
        ]

    @property
    def leading(self) -> Replica:
        return self.both[self.leader]

    def _pending(self) -> list[Object]:
        return [one for one in self.cluster.pods.values() if not one["spec"].get("nodeName")]

    @rule(mem=st.sampled_from([4, 8, 12]), priority=st.sampled_from([0, 0, 9]))
    def pod_comes(self, mem: int, priority: int) -> None:
        self.serial += 1
        self.cluster.put(pending(f"p{self.serial}", mem, priority=priority))

    @rule(size=st.integers(2, 3), mem=st.sampled_from([4, 8]))
    def gang_comes(self, size: int, mem: int) -> None:
        self.serial += 1
        labels = {"gpu-topology": f"g{self.serial}", "gpu-topology-replica": str(size)}
        for number in range(size):
            self.cluster.put(pending(f"g{self.serial}-{number}", mem, labels=labels))

    @rule(which=st.integers(0, 1), count=st.integers(1, 6))
    def watch_brings(self, which: int, count: int) -> None:
        self.both[which].hear(count)

    @rule(which=st.sampled_from([0, 1]), seconds=st.sampled_from([0.0, 0.3, 1.0, 20.0, 70.0]))
    def round_happens(self, which: int, seconds: float) -> None:
        self.time += seconds
        self.both[which].round()

    @rule(which=st.integers(0, 1), count=st.integers(1, 8))
    def patches_are_sent(self, which: int, count: int) -> None:
        for _ in range(count):
            self.both[which].send()

    @rule()
    def the_lease_moves(self) -> None:
        self.leader = 1 - self.leader
        self.leading.hear()
        self.leading.term += 1

    @precondition(lambda self: self._pending())
    @rule(pick=st.integers(0, 20))
    def scheduler_binds(self, pick: int) -> None:
        """On the node that is reserved for the pod, else on any that fits."""
        item = self._pending()[pick % len(self._pending())]
        uid, state = PodUid(item["metadata"]["uid"]), self.leading.state
        pod = read(item)
        reserved = state.ledger.nomination(uid)
        names = [reserved.placement.node] if reserved else [NodeName(name) for name in SIZES]
        self.leading.hear()
        for name in names:
            standing = state.ledger.nomination(uid)
            if standing is not None and standing.placement.node == name:
                state.forget(uid)
            request, info = state.saw(pod).pod_request, state.ledger.node(name)
            assert request is not None
            assert info is not None
            if reserved_for_nominated(state.nominations, info, pod, request) is not None:
                continue
            placement = place(info, request)
            if isinstance(placement, Placement) and state.ledger.allocation(uid) is None:
                state.assume(pod, placement, now_ns=self.leading.clock())
                changed = json.loads(json.dumps(self.cluster.pods[item["metadata"]["name"]]))
                changed["spec"]["nodeName"] = name
                index = str(next(iter(placement.mem)))
                changed["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": index}
                self.cluster.put(changed)
                return

    @precondition(lambda self: self._pending())
    @rule(pick=st.integers(0, 20), node=st.sampled_from(["", "", "a"]))
    def scheduler_writes(self, pick: int, node: str) -> None:
        """It clears the nomination of a pod, or nominates one for which it evicts others."""
        item = json.loads(json.dumps(self._pending()[pick % len(self._pending())]))
        nominate(item, node, "kube-scheduler")
        self.cluster.put(item)

    @precondition(lambda self: self.cluster.pods)
    @rule(pick=st.integers(0, 20))
    def pod_goes(self, pick: int) -> None:
        names = sorted(self.cluster.pods)
        self.cluster.delete(names[pick % len(names)])

    @invariant()
    def no_gpu_is_nominated_twice(self) -> None:
        """In the books of the leader, once it has begun, nominations only take what is free."""
        if self.leading.rounds._term == self.leading.term:
            for name, info in self.leading.state.ledger.nodes().items():
                assert info.used_units <= SIZES[name]

    @invariant()
    def nominations_of_the_scheduler_stay(self) -> None:
        """Whatever it writes is changed by the scheduler or by the end of the pod alone."""
        for what, item in self.cluster.log[-1:]:
            if what == "put":
                uid = item["metadata"]["uid"]
                before = [one for _, one in self.cluster.log[:-1] if one["metadata"]["uid"] == uid]
                mine = item["metadata"].get("managedFields", [{}])[0].get("manager") == MANAGER
                if mine and before:
                    fields = before[-1]["metadata"].get("managedFields", [{}])[0]
                    theirs = fields.get("manager") == "kube-scheduler" and fields["fieldsV1"]
                    assert not theirs

    def teardown(self) -> None:
        """Once everything is heard of and sent, what is shown and what is reserved are the same."""
        for _ in range(4):
            self.time += FOUND_OUT
            for replica in self.both:
                replica.hear()
                replica.round()
                while len(replica.writes):
                    replica.send()
        self.leading.hear()
        held, waiting = self.leading.state.ledger, {}
        for one in self._pending():
            waiting[one["metadata"]["uid"]] = one["status"].get("nominatedNodeName")
        for uid in held.nominations():
            assert waiting[uid] == held.nomination(uid).placement.node
        for name in SIZES:
            for item in self.cluster.shown(name):
                assert item["metadata"]["uid"] in held.nominations()
        assert not self.both[1 - self.leader].state.ledger.nominations()
        for replica in self.both:
            replica.loop.close()


CHECK = settings(
    max_examples=25,
    phases=[Phase.generate],
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_two_replicas_never_nominate_memory_twice() -> None:
    """Whatever happens in whatever order; and reservations never outlive their pods."""
    run_state_machine_as_test(Replicas, settings=CHECK)
