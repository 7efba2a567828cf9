"""The nominated pods of each node: when one counts, and what is reported once it counts no more."""

import msgspec
from corebuilders import ledger, make_gpus, pod, pod_request, share_node

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.sentences import sentence
from gpucore.model import PodRequest
from gpucore.scheduling.nominated import reserved_for_nominated
from gpucore.scheduling.pending_pods import Nominations
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod

N, M = NodeName("n"), NodeName("m")


def to(node: str, name: str = "p", mem: int = 8, priority: int = 0) -> Pod:
    """A pod that is nominated to a node."""
    return msgspec.structs.replace(pod(name, mem), nominated=NodeName(node), priority=priority)


def noted(*pods: Pod) -> Nominations:
    """The nominations of these pods."""
    found = Nominations()
    for one in pods:
        found.note(one, pod_request(one))
    return found


def info(name: str = "n") -> NodeInfo:
    """A node with one GPU of 16 units."""
    found = ledger(share_node(name, make_gpus(16))).node(NodeName(name))
    assert found is not None
    return found


def test_a_nominated_pod_is_known_with_all_that_counts() -> None:
    """A pod without a nomination, or with an impossible request, is not."""
    item = to("n", priority=7)
    found = noted(item, to("", "free"))
    (one,) = found.pods()
    assert msgspec.structs.astuple(one) == (
        item.uid,
        "p",
        pod_request(item),
        7,
        "default",
        "",
    )
    found.note(to("n", "odd"), PodRequest((), fault="never"))
    assert found.nodes() == {"n"}
    assert bool(found)
    assert not Nominations()


def test_the_node_that_a_pod_leaves_is_reported() -> None:
    """Not where it stays there; two pods of one node count until both have left."""
    found = noted(to("n"), to("n", "q"))
    assert found.note(to("n"), pod_request(to("n"))) is None
    assert found.note(to("m"), pod_request(to("m"))) == N
    assert found.nodes() == {"n", "m"}
    assert found.drop(PodUid("uid-q")) == N
    assert found.nodes() == {"m"}
    assert found.note(to(""), pod_request(to(""))) == M
    assert not found
    assert found.drop(PodUid("uid-p")) is None


def test_nothing_is_known_after_a_new_list() -> None:
    """Of no pod and of no node."""
    found = noted(to("n"))
    found.clear()
    assert (found.pods(), found.nodes()) == ([], frozenset())
    assert found.drop(PodUid("uid-p")) is None


def test_memory_is_kept_from_the_same_and_lower_priorities_on_that_node_alone() -> None:
    """A pod is not in its own way; the reason counts the pods for which it is kept."""
    found = noted(to("n", "second", priority=5), to("n", "first", priority=5), to("m", "third"))
    rival = to("", "rival", 1, priority=5)
    assert [one.name for one in found.before(N, rival)] == ["second", "first"]
    refusal = reserved_for_nominated(found, info(), rival, pod_request(rival))
    assert refusal is not None
    assert refusal.reserved_for == 2
    higher = to("", "rival", 1, priority=6)
    assert reserved_for_nominated(found, info(), higher, pod_request(higher)) is None
    own = to("n", "first", 8, priority=5)
    assert reserved_for_nominated(found, info(), own, pod_request(own)) is None
    assert reserved_for_nominated(found, info("other"), rival, pod_request(rival)) is None
    assert reserved_for_nominated(found, None, rival, pod_request(rival)) is None


def test_a_refusal_counts_the_nominated_pods_and_names_none() -> None:
    """They may be of other tenants, and the refusal is in the events of the refused pod."""
    rival = to("", "rival", 1)
    one, two = noted(to("n", "theirs", 16)), noted(to("n", "theirs", 8), to("n", "others", 8))
    for found, counted in ((one, "1 pod"), (two, "2 pods")):
        refusal = reserved_for_nominated(found, info(), rival, pod_request(rival))
        assert refusal is not None
        words = sentence(refusal)
        assert words.endswith(f"; capacity is reserved for {counted} nominated to this node")
        assert not {"theirs", "others"} & set(words.replace(",", " ").split())


def test_no_nomination_is_given_as_the_reason_of_a_node_that_is_too_small() -> None:
    """Nobody is nominated there, so the reason is that of the node's GPUs alone."""
    large = to("", "large", 17)
    assert reserved_for_nominated(noted(to("m")), info(), large, pod_request(large)) is None
