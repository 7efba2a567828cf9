"""Why a placed pod sits where it sits, and what would make room for one that waits."""

from collections.abc import Iterable

from corebuilders import NAMES, assumed, bound, ledger, make_gpus, pod, pod_request, share_node
from linkedgpus import BRIDGED, indexes, joined_gpus, linked_node

from gpucore.accounting.ledger import Ledger
from gpucore.explain.gangs import gang_words
from gpucore.explain.pods import placement_reason
from gpucore.explain.suggestions import suggest
from gpucore.gang.members import Members
from gpucore.gang.placement import place_gang
from gpucore.model import Placement
from gpucore.model.constraints import CandidateNode
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.grouping import Rules
from gpucore.steps import complete
from gpucore.units import NodeName
from gpucore.wire.names import TOPOLOGY
from gpucore.wire.pod.gangs import Gang
from gpucore.wire.pod.spec import Pod

RULES = Rules()


def holding(book: Ledger, of: Pod, *gpus: int) -> Pod:
    """The pod with these exclusive GPUs of ``n``, entered in the books."""
    placed = bound(of, Placement(NodeName("n"), group=indexes(*gpus)), joined_gpus(BRIDGED))
    book.pod_changed(placed)
    return placed


def reason(book: Ledger, of: Pod) -> str:
    """The reason of a placed pod."""
    allocation, node_info = book.allocation(of.uid), book.node(NodeName("n"))
    assert allocation is not None
    assert node_info is not None
    return placement_reason(allocation, pod_request(of), node_info, ClusterPolicy())


def words(book: Ledger, pending: Pod, *open_nodes: str) -> list[str]:
    """What would help a pod that waits; all nodes take new pods unless some are named."""
    node_infos, waiting = book.nodes(), PodRequirements(pod_request(pending))
    closed = set(node_infos).difference(open_nodes) if open_nodes else set[str]()
    nodes = {name: CandidateNode(name, unschedulable=name in closed) for name in node_infos}
    cluster = Candidates(node_infos, nodes)
    refusals = {name: cluster.refusal(name, waiting) for name in cluster.nodes}
    return complete(suggest(waiting, cluster, refusals))


def of_gang(book: Ledger, pending: Pod, size: int, names: Iterable[str]) -> list[str]:
    """The reason of a gang whose pods request this."""
    gang, offered = Gang("default", "train", size), [NodeName(name) for name in names]
    members = Members(exist=size, alike=size)
    answer = place_gang(book, gang, pod_request(pending), offered, RULES, members=members, now_ns=0)
    return list(gang_words(answer, book, RULES))


def test_whole_gpus_that_would_be_chosen_again() -> None:
    """The policy, how many GPUs there were to choose from, and what they score."""
    book = ledger(linked_node("n", BRIDGED))
    mine = holding(book, pod("p", gpus=2), 0, 3)
    assert reason(book, mine) == (
        "best-effort (the default) would choose the same of the 4 GPUs that are free "
        "without this pod; "
        "they score 200"
    )


def test_whole_gpus_that_are_not_the_best() -> None:
    """The better group is named with both scores; a policy of the pod's own is named as such."""
    book = ledger(linked_node("n", BRIDGED))
    own = {"gpushare/topology": "bandwidth"}
    mine = holding(book, pod("p", gpus=2, annotations=own), 0, 1)
    assert reason(book, mine) == (
        "bandwidth would choose GPUs 0, 3 now, of the 4 GPUs that are free without this pod: they "
        "score 200, its own 20"
    )


def test_whole_gpus_without_known_links() -> None:
    """Without links there is no score, and that is reported where the choice differs."""
    book = ledger(share_node("n", make_gpus(15, 15, 15), whole=True))
    first, last = holding(book, pod("a", gpus=1), 0), holding(book, pod("b", gpus=1), 2)
    assert reason(book, first).endswith("the same of the 2 GPUs that are free without this pod")
    assert reason(book, last).endswith(
        "choose GPU 1 now, of the 2 GPUs that are free without this pod; the node reports no links"
    )


def test_shares_use_their_own_policy() -> None:
    """A share is explained by the GPU policy and its rule."""
    book = ledger(share_node("n", make_gpus(15, 15)))
    assumed(book, "n", pod("p", 4))
    assert reason(book, pod("p", 4)).startswith("binpack would choose the same again: the fullest")


def test_a_share_of_several_gpus_is_explained_by_its_links_first() -> None:
    """GPUs 0 and 3 are joined, so they were taken before GPU 1; with simple they would not be."""
    wide = pod("p", 8, labels={NAMES.gpu_count: "2"})
    book = ledger(linked_node("n", BRIDGED))
    assert list(assumed(book, "n", wide).placement.mem) == [0, 3]
    assert reason(book, wide) == (
        "binpack would choose the same again: of the groups that are connected as best-effort "
        "requires, the one with the fullest GPU that fits, the lowest index among equals"
    )
    simple = pod("p", 8, labels={NAMES.gpu_count: "2"}, annotations={TOPOLOGY: "simple"})
    book = ledger(linked_node("n", BRIDGED))
    assumed(book, "n", simple)
    assert reason(book, simple).startswith("binpack would choose the same again: the fullest GPU")


def test_what_whole_gpus_wait_for() -> None:
    """Whose end frees enough GPUs, what is short, and the best group of what is free."""
    book = ledger(linked_node("n", BRIDGED))
    for name, gpu in (("a", 1), ("b", 2)):
        holding(book, pod(name, gpus=1), gpu)
    assert words(book, pod("p", gpus=3)) == [
        "it fits n once default/a ends",
        "n is 1 free GPU short; 'gpushare defrag --gpus 3' shows whether pods can be moved",
        "GPUs 0, 3 (score 200) can be had now, on n",
    ]
    assert words(book, pod("p", gpus=4))[0] == "it fits n once default/a, default/b end"


def test_the_pod_with_several_gpus_is_named_where_its_end_is_enough() -> None:
    """One end frees as many GPUs as those of two other pods; for one GPU a small pod is enough."""
    book = ledger(linked_node("n", BRIDGED))
    for name, gpus in (("a", (0,)), ("b", (1,)), ("wide", (2, 3))):
        holding(book, pod(name, gpus=len(gpus)), *gpus)
    assert words(book, pod("p", gpus=2))[0] == "it fits n once default/wide ends"
    assert words(book, pod("p", gpus=3))[0] == "it fits n once default/a, default/wide end"
    assert words(book, pod("p", gpus=1))[0] == "it fits n once default/a ends"


def test_what_is_free_is_named_with_its_score() -> None:
    """Where exclusive GPUs fit, the answer names the group that a pod would get."""
    book = ledger(linked_node("n", BRIDGED))
    (sentence,) = words(book, pod("p", gpus=2))
    assert sentence == "n can take it now, on GPUs 0, 3 (score 200)"
    (closed,) = words(book, pod("p", gpus=2), "elsewhere")
    assert closed == "n has enough capacity, but is cordoned or not ready"


def test_a_machine_that_is_too_small_is_not_promised() -> None:
    """No end of pods makes more GPUs than a node has."""
    book = ledger(linked_node("n", BRIDGED))
    holding(book, pod("a", gpus=1), 0)
    assert words(book, pod("p", gpus=5)) == [
        "no node has 5 healthy GPUs; n has the most, 4: request at most 4",
        "GPUs 1, 2, 3 (score 230) can be had now, on n",
    ]


def test_a_gang_that_is_short_names_the_roomiest_nodes() -> None:
    """The shortage as a whole, then each node with its free GPUs and its best group."""
    book = ledger(linked_node("n", BRIDGED), linked_node("m", BRIDGED))
    holding(book, pod("a", gpus=1), 1)
    assert of_gang(book, pod("p", gpus=2), 4, ["n", "m"]) == [
        "gang train needs 4 x 2 GPUs: capacity for 3 members on 2 nodes",
        "m has 4 GPUs free, for 2 members, the best 2 of them GPUs 0, 3 (score 200)",
        "n has 3 GPUs free, for 1 member, the best 2 of them GPUs 0, 3 (score 200)",
    ]


def test_a_gang_that_fits_lists_where_each_pod_would_go() -> None:
    """Node by node, with every member's GPUs and their score; shares in a word."""
    book = ledger(linked_node("n", BRIDGED))
    assert of_gang(book, pod("p", gpus=2), 2, ["n"]) == [
        "2 members of the gang would be placed on n: GPUs 0, 3 (score 200); GPUs 1, 2 (score 200)"
    ]
    assert of_gang(book, pod("p", 8), 2, ["n"]) == [
        "2 members of the gang would be placed on n: shares"
    ]


def test_a_gang_of_shares_that_is_short() -> None:
    """For shares the members that a node has room for are counted."""
    book = ledger(share_node("n", make_gpus(15)))
    assert of_gang(book, pod("p", 8), 2, ["n"])[1:] == ["n has capacity for 1 member"]
