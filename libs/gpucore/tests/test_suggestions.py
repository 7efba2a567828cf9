"""What would make room: each sentence that promises room holds, and no other is given."""

from collections.abc import Mapping

import pytest
from corebuilders import assumed, ledger, make_gpus, pod, pod_request, share_node
from msgspec.structs import replace

from gpucore.explain.suggestions import suggest
from gpucore.model import Code, FitError, Inventory
from gpucore.model.constraints import CandidateNode, PodConstraints, Resources, Taint
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.steps import complete
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod

CPU = {"cpu": 4000}


def words(
    pending: Pod,
    *nodes: CandidateNode,
    holding: Mapping[str, Pod] | None = None,
    requests: Mapping[PodUid, Resources] | None = None,
    constraints: PodConstraints | None = None,
) -> list[str]:
    """What would help on nodes of one GPU of 15, with these pods on them."""
    book = ledger(*(share_node(node.name, make_gpus(15)) for node in nodes))
    for name, held in (holding or {}).items():
        assumed(book, name, held)
    waiting = PodRequirements(pod_request(pending), constraints or PodConstraints())
    cluster = Candidates(book.nodes(), {n.name: n for n in nodes}, requests or {})
    return complete(suggest(waiting, cluster, refusals(cluster, waiting)))


def refusals(cluster: Candidates, waiting: PodRequirements) -> dict[NodeName, FitError | None]:
    """The answer of every node."""
    return {name: cluster.refusal(name, waiting) for name in cluster.nodes}


def node(name: str, *, cpu: int = 0, taints: tuple[Taint, ...] = ()) -> CandidateNode:
    """A node with so many thousandths of its four cores requested."""
    return CandidateNode(
        NodeName(name), allocatable=CPU, requested={"cpu": cpu}, pods=1, taints=taints
    )


def test_a_pod_whose_end_frees_gpu_and_cpu() -> None:
    """The end of the neighbour helps where it gives back what the pod requests of both."""
    small = PodConstraints(requests=(("cpu", 2000),))
    held = {"n": pod("a", 12)}
    given = {PodUid("uid-a"): (("cpu", 3000),)}
    found = words(pod("p", 8), node("n", cpu=3000), holding=held, requests=given, constraints=small)
    assert found[0] == "it fits GPU 0 of n once default/a ends (12 GiB)"


def test_a_pod_whose_end_frees_no_cpu_is_not_named() -> None:
    """Where others hold the cpu, the neighbour's end makes no room, and nothing is promised."""
    small = PodConstraints(requests=(("cpu", 2000),))
    found = words(pod("p", 8), node("n", cpu=3000), holding={"n": pod("a", 12)}, constraints=small)
    assert found == [Code.INSUFFICIENT_RESOURCES.remedy]


def test_one_pod_is_enough_where_a_gpu_fits_and_pods_on_unknown_gpus_leave_too_little() -> None:
    """Two would have to end on the other GPU."""
    book = ledger(share_node("n", make_gpus(16, 40)))
    for name, size in (("a", 9), ("b", 7), ("c", 13), ("d", 13)):
        assumed(book, "n", pod(name, size))
    book.pod_changed(pod("unknown", 12, node="n"))
    waiting = PodRequirements(pod_request(pod("p", 12)))
    cluster = Candidates(book.nodes(), {NodeName("n"): node("n")})
    found = complete(suggest(waiting, cluster, refusals(cluster, waiting)))
    assert found[0] == "it fits GPU 1 of n once default/c ends (13 GiB)"


def test_every_rule_that_excludes_a_node_is_named() -> None:
    """One sentence for each different set of reasons, the fewest reasons first."""
    ml = Taint("dedicated", "ml", "NoSchedule")
    wants = PodConstraints(node_selector=(("gpu", "t4"),))
    found = words(pod("p", 8), node("b", taints=(ml,)), node("a"), node("c"), constraints=wants)
    assert found == [
        "a has enough GPU memory; the pod is blocked by its nodeSelector gpu=t4",
        (
            "b has enough GPU memory; the pod is blocked by taint dedicated=ml:NoSchedule and "
            "its nodeSelector gpu=t4"
        ),
    ]


def test_the_end_of_a_pod_on_an_excluded_node_is_not_offered() -> None:
    """A node that the pod may not use is no way out, however few pods would have to end."""
    ml = Taint("dedicated", "ml", "NoSchedule")
    held = {"a": pod("x", 12), "b": pod("y", 13)}
    found = words(pod("p", 8), node("a", taints=(ml,)), node("b"), holding=held)
    assert found == [
        "it fits GPU 0 of b once default/y ends (13 GiB)",
        "a share of 2 GiB fits now, on b",
    ]


@pytest.mark.parametrize(
    ("units", "ending"),
    [
        (6, "default/x0, default/x1 end (6 GiB)"),
        (15, "default/x0, default/x1, default/x2 and 2 more end (15 GiB)"),
    ],
)
def test_several_pods_that_have_to_end(units: int, ending: str) -> None:
    """The first three are named, and the others counted."""
    book = ledger(share_node("n", make_gpus(15)))
    for number in range(5):
        assumed(book, "n", pod(f"x{number}", 3))
    waiting = PodRequirements(pod_request(pod("p", units)))
    cluster = Candidates(book.nodes(), {NodeName("n"): node("n")})
    found = complete(suggest(waiting, cluster, refusals(cluster, waiting)))
    assert found == [f"it fits GPU 0 of n once {ending}"]


def test_a_share_that_wants_its_gpu_alone() -> None:
    """Its GPU must be empty: every holder is named."""
    alone = pod("p", 2, labels={"ack.gpushare.placement": "require-whole-device"})
    found = words(alone, node("n"), holding={"n": pod("a", 3)})
    assert found[0] == "it fits GPU 0 of n once default/a ends (3 GiB)"


def test_a_request_of_several_gpus_is_offered_where_a_node_has_them() -> None:
    """The label gpu-count is advice only where the memory of a node's GPUs would do together."""
    found = words(pod("p", 20), node("n"))
    assert found[0] == "no GPU is that large: check the unit (GiB or MiB)"
    book = ledger(share_node("n", make_gpus(15, 15)))
    waiting = PodRequirements(pod_request(pod("p", 20)))
    cluster = Candidates(book.nodes(), {NodeName("n"): node("n")})
    assert complete(suggest(waiting, cluster, refusals(cluster, waiting)))[0] == (
        "no GPU is that large: check the unit (GiB or MiB), "
        "or spread the pod over GPUs with the label aliyun.com/gpu-count "
        "(the prefix is that of the resources)"
    )


@pytest.mark.parametrize(
    ("nodes", "units"),
    [
        ([make_gpus(39), make_gpus(8, 8, 8, 8)], 60),
        ([make_gpus(39, 8, 8)], 60),
        ([make_gpus(15, 15)], 29),
        ([make_gpus(39, 39), make_gpus(15, 15, 15)], 53),
    ],
    ids=["of two nodes", "of two sizes", "odd number of units", "too few of a size"],
)
def test_a_share_is_spread_only_where_a_node_has_gpus_for_equal_parts(
    nodes: list[Inventory], units: int
) -> None:
    """The label is no advice where no number of GPUs of one node takes equal parts."""
    book = ledger(*(share_node(f"n{i}", each) for i, each in enumerate(nodes)))
    waiting = PodRequirements(pod_request(pod("p", units)))
    cluster = Candidates(book.nodes(), {name: node(name) for name in book.nodes()})
    found = complete(suggest(waiting, cluster, refusals(cluster, waiting)))
    assert found[0] == "no GPU is that large: check the unit (GiB or MiB)"


def test_a_smaller_share_of_one_gpu_is_no_share_of_several() -> None:
    """With the label that spreads the pod the amount would be divided, and here be refused."""
    book = ledger(share_node("n", make_gpus(15, 15)))
    assumed(book, "n", pod("x", 15))
    assumed(book, "n", pod("y", 8))
    spread = pod("p", 24, labels={"aliyun.com/gpu-count": "2"})
    waiting = PodRequirements(pod_request(spread))
    cluster = Candidates(book.nodes(), {NodeName("n"): node("n")})
    (found,) = complete(suggest(waiting, cluster, refusals(cluster, waiting)))
    assert found == (
        "a share of 7 GiB without the label aliyun.com/gpu-count "
        "(the prefix is that of the resources) fits now, on n"
    )


def test_gpus_of_a_stopped_device_plugin_are_not_advised() -> None:
    """The node takes no pod until its device plugin is back, however few GPUs the pod requests."""
    stopped = replace(make_gpus(15, 15), serving=False)
    book = ledger(share_node("n", stopped, whole=True))
    waiting = PodRequirements(pod_request(pod("p", gpus=3)))
    cluster = Candidates(book.nodes(), {NodeName("n"): node("n")})
    assert complete(suggest(waiting, cluster, refusals(cluster, waiting))) == [
        Code.PLUGIN_AWAY.remedy
    ]


def test_without_a_certain_step_the_catalogue_answers() -> None:
    """A reason that no step cures has its remedy; nodes without shares are left out."""
    book = ledger(share_node("n", make_gpus(15)), share_node("m", make_gpus()))
    pending = pod("p", 4, annotations={"gpushare/isolation": "mps"})
    waiting = PodRequirements(pod_request(pending))
    cluster = Candidates(book.nodes(), {NodeName(n): node(n) for n in ("n", "m")})
    assert complete(suggest(waiting, cluster, refusals(cluster, waiting))) == [
        Code.ISOLATION_MODE_MISSING.remedy
    ]


def test_gpus_of_an_excluded_node_are_not_counted() -> None:
    """The largest node counts only where the pod may go there."""
    big, small = make_gpus(15, 15, 15), make_gpus(15)
    book = ledger(share_node("big", big, whole=True), share_node("small", small, whole=True))
    assumed(book, "big", pod("x", 12))
    ml = Taint("dedicated", "ml", "NoSchedule")
    waiting = PodRequirements(pod_request(pod("p", gpus=3)))
    nodes = {NodeName("big"): node("big", taints=(ml,)), NodeName("small"): node("small")}
    cluster = Candidates(book.nodes(), nodes)
    assert complete(suggest(waiting, cluster, refusals(cluster, waiting))) == [
        "no node that the pod can use has 3 healthy GPUs; small has the most, 1: request at most 1",
        "GPU 0 can be had now, on small",
    ]


def test_a_node_whose_gpus_are_unknown_may_have_enough() -> None:
    """Its device plugin has not published them: what to do about that is stated, not a number."""
    small = share_node("small", make_gpus(15), whole=True)
    unknown = replace(share_node("new", make_gpus(15, 15, 15), whole=True), annotations={})
    waiting = PodRequirements(pod_request(pod("p", gpus=2)))
    nodes = {NodeName(name): node(name) for name in ("small", "new")}
    for offered, found in (
        ([unknown], [Code.NO_INVENTORY.remedy]),
        ([small, unknown], ["GPU 0 can be had now, on small"]),
    ):
        book = ledger(*offered)
        cluster = Candidates(book.nodes(), {each.name: nodes[each.name] for each in offered})
        assert complete(suggest(waiting, cluster, refusals(cluster, waiting))) == found
