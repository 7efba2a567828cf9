"""Nominated pods, call by call: for which node one counts, and when it counts no more."""

from dataclasses import dataclass

from decoded import a_node, a_pod, state_of
from objects import pod

from gpucore.explain.sentences import reserved_words
from gpucore.model import ContainerRequest, PodRequest
from gpucore.scheduling.nominated import reserved_for_nominated
from gpucore.scheduling.pending_pods import Nominations
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod

DEMAND = PodRequest((ContainerRequest(8),), mem=8)


@dataclass
class Bench:
    """The nominations of one node with a GPU of 16 units."""

    nominations: Nominations

    def note(
        self, name: str, node: str, *, priority: int = 0, pod_request: PodRequest = DEMAND
    ) -> object:
        """A pod waits, nominated for a node or for none."""
        return self.nominations.note(waiting(name, node, priority), pod_request)

    def refusal(self, name: str, mem: int, priority: int = 0) -> str:
        """Why the free node is kept from a pod; empty where it is not."""
        node_info = state_of(a_node("n", 16)).ledger.node(NodeName("n"))
        pod_request = PodRequest((ContainerRequest(mem),), mem=mem)
        pod = waiting(name, "", priority)
        found = reserved_for_nominated(self.nominations, node_info, pod, pod_request)
        return reserved_words(found.reserved_for) if found else ""


def waiting(name: str, node: str, priority: int) -> Pod:
    """A pod without a node."""
    item = pod(name, 8, uid=name, priority=priority)
    return a_pod(item | {"status": {"phase": "Pending", "nominatedNodeName": node}})


def test_a_pod_counts_for_the_node_it_is_nominated_for() -> None:
    """Only for that one, and only from a nomination on."""
    bench = Bench(Nominations())
    assert bench.note("p", "") is None
    assert (bool(bench.nominations), bench.nominations.nodes()) == (False, frozenset())
    assert bench.note("p", "n") is None
    assert (bool(bench.nominations), bench.nominations.nodes()) == (True, {"n"})
    assert bench.nominations.before(NodeName("m"), waiting("q", "", 0)) == []


def test_the_node_that_is_free_again_is_named() -> None:
    """Verdicts of that node change; those of a node that stays the same do not."""
    bench = Bench(Nominations())
    bench.note("p", "n")
    assert bench.note("p", "n") is None
    assert bench.note("p", "m") == "n"
    assert bench.nominations.nodes() == {"m"}
    assert bench.note("p", "") == "m"
    assert not bench.nominations
    assert bench.nominations.drop(PodUid("p")) is None


def test_a_node_is_kept_until_its_last_pod_is_gone() -> None:
    """Two pods may be nominated for one node."""
    bench = Bench(Nominations())
    bench.note("p", "n")
    bench.note("q", "n")
    assert bench.nominations.drop(PodUid("p")) == "n"
    assert bench.nominations.nodes() == {"n"}
    assert bench.nominations.drop(PodUid("q")) == "n"
    assert (bool(bench.nominations), bench.nominations.nodes()) == (False, frozenset())


def test_a_request_that_no_node_can_serve_keeps_nothing() -> None:
    """A pod that can never be placed must not hold room for ever."""
    bench = Bench(Nominations())
    assert bench.note("p", "n", pod_request=PodRequest((), fault="never")) is None
    assert not bench.nominations
    bench.note("p", "n")
    assert bench.note("p", "n", pod_request=PodRequest((), fault="never")) is None
    assert not bench.nominations


def test_after_a_relist_nothing_is_known() -> None:
    """The pods of the list are entered anew."""
    bench = Bench(Nominations())
    bench.note("p", "n")
    bench.nominations.clear()
    assert not bench.nominations
    assert bench.note("p", "m") is None


def test_room_is_kept_from_the_same_and_lower_priorities() -> None:
    """The sentence counts the pods for which it is kept; a pod is not in its own way."""
    bench = Bench(Nominations())
    bench.note("second", "n", priority=10)
    assert bench.refusal("other", 8, 10) == ""
    expected = "capacity is reserved for 1 pod nominated to this node"
    assert bench.refusal("other", 9, 10) == expected
    assert bench.refusal("other", 9, 11) == ""
    assert bench.refusal("second", 16, 10) == ""
    bench.note("first", "n", priority=10)
    expected = "capacity is reserved for 2 pods nominated to this node"
    assert bench.refusal("other", 1, 10) == expected


def test_an_unknown_node_keeps_nothing() -> None:
    """Its own refusal is given elsewhere."""
    bench = Bench(Nominations())
    bench.note("p", "n")
    assert reserved_for_nominated(bench.nominations, None, waiting("q", "", 0), DEMAND) is None
