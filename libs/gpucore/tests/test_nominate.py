"""Which pending pods are nominated, and which nominations stand."""

import msgspec
import pytest
from corebuilders import ledger, make_gpus, pod, pod_request, share_node

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import FitError
from gpucore.model.constraints import CandidateNode, PodConstraints
from gpucore.nomination import giving_way, left_to_scheduler, nomination_stands
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import all_constraints
from gpucore.wire.pod.spec import Pod

N = NodeName("n")


def read(spec: dict[str, object]) -> PodConstraints:
    """The constraints of a pod with this specification."""
    return all_constraints(msgspec.json.encode({"metadata": {}, "spec": spec}))


def pending(constraints: PodConstraints | None = None, **fields: object) -> Pod:
    """A pending pod."""
    return msgspec.structs.replace(pod("p", 1), constraints=constraints, **fields)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ""),
        ({"nodeSelector": {"a": "b"}}, ""),
        ({"affinity": {"podAntiAffinity": {}}}, ""),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
                }
            },
            "inter-pod anti-affinity",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topology spread constraints",
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "volumes"),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ""),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, "host ports"),
        ({"resourceClaims": [{}]}, "resource claims"),
    ],
)
def test_pods_with_constraints_that_are_not_evaluated_are_left_alone(
    spec: dict[str, object], words: str
) -> None:
    """Soft preferences keep nobody from being nominated."""
    assert left_to_scheduler(pending(read(spec))) == words


def test_pods_with_thousands_of_constraints_are_left_alone() -> None:
    """They would be compared with every node, and kept with what each node answered."""
    for labels, words in ((1000, ""), (1001, "it has too many constraints")):
        selector = {f"k{n}": "v" for n in range(labels)}
        assert left_to_scheduler(pending(read({"nodeSelector": selector}))) == words


def test_pods_that_cannot_be_placed_yet_are_left_alone() -> None:
    """Gated and terminating pods, and pods that were read without constraints."""
    free = PodConstraints()
    assert left_to_scheduler(pending()) == "its constraints were not read"
    assert left_to_scheduler(pending(free, gated=True)) == "it has scheduling gates"
    assert left_to_scheduler(pending(free, terminating=True)) == "it is being deleted"


def test_the_pods_of_a_pod_group_are_left_alone() -> None:
    """kube-scheduler places them together, whatever nodes each of them is nominated for."""
    words = "its scheduler evaluates all nodes for its PodGroup"
    assert left_to_scheduler(pending(PodConstraints(), pod_group="g")) == words


def nominated(*amounts: int, gpus: tuple[int, ...] = (16,)) -> NodeInfo:
    """The node n with GPUs of these units and nominated pods p0, p1, ... of these amounts."""
    books = ledger(share_node("n", make_gpus(*gpus)))
    for number, mem in enumerate(amounts):
        item = pod(f"p{number}", mem)
        placement = place(books.nodes()[N], pod_request(item))
        assert not isinstance(placement, FitError)
        books.nominate(item, placement, now_ns=1)
    return books.nodes()[N]


def kind(mem: int, **requests: int) -> PodRequirements:
    """What a pod of so many units requests."""
    return PodRequirements(
        pod_request(pod("x", mem)), PodConstraints(requests=tuple(requests.items()))
    )


def test_a_nomination_stands_while_the_node_admits_the_pod_in_its_place() -> None:
    """Its own reservation does not count against it; a cordon and a lack of cpu do."""
    node_info, uid = nominated(16), PodUid("uid-p0")
    node = CandidateNode(N, allocatable={"cpu": 1000}, requested={"cpu": 1000}, pods=1)
    requesting = kind(16, cpu=600)
    assert nomination_stands(node_info, node, requesting, uid)
    cordoned = msgspec.structs.replace(node, unschedulable=True)
    assert not nomination_stands(node_info, cordoned, requesting, uid)
    full = msgspec.structs.replace(node, requested={"cpu": 1100})
    assert not nomination_stands(node_info, full, requesting, uid)
    assert not nomination_stands(node_info, node, kind(17), uid)


def test_nominated_pods_of_lower_priority_give_way_as_few_as_needed() -> None:
    """The lowest first; nobody gives way where that does not help."""
    node_info, node = nominated(4, 4, 8), CandidateNode(N)
    lower = [(PodUid(f"uid-p{number}"), kind(mem)) for number, mem in enumerate((4, 4, 8))]
    assert giving_way(node_info, node, kind(3), lower) == ["uid-p0"]
    assert giving_way(node_info, node, kind(8), lower) == ["uid-p0", "uid-p1"]
    assert giving_way(node_info, node, kind(17), lower) == ()
    assert giving_way(node_info, node, kind(8), lower[:1]) == ()


def test_a_nominated_pod_on_another_gpu_keeps_its_place() -> None:
    """Though its priority is lower than that of the pods that give way."""
    node_info, node = nominated(6, 8, 8, gpus=(6, 16)), CandidateNode(N)
    lower = [(PodUid(f"uid-p{number}"), kind(mem)) for number, mem in enumerate((6, 8, 8))]
    assert giving_way(node_info, node, kind(16), lower) == ["uid-p1", "uid-p2"]
    assert giving_way(node_info, node, kind(8), lower) == ["uid-p1"]


def test_each_pod_that_gives_way_leaves_its_other_requests_and_its_place() -> None:
    """cpu, and one of the pods that the node may run."""
    lower = [(PodUid(f"uid-p{number}"), kind(4, cpu=400)) for number in range(3)]
    node = CandidateNode(N, allocatable={"cpu": 1200}, requested={"cpu": 1200}, pods=3)
    node_info = nominated(4, 4, 4)
    assert giving_way(node_info, node, kind(4, cpu=500), lower) == ["uid-p0", "uid-p1"]
    full = msgspec.structs.replace(node, allocatable={"cpu": 9000, "pods": 3})
    assert giving_way(node_info, full, kind(4), lower) == ["uid-p0"]
    crowded = msgspec.structs.replace(node, allocatable={"cpu": 9000, "pods": 2})
    assert giving_way(node_info, crowded, kind(4), lower) == ["uid-p0", "uid-p1"]


def test_the_account_of_the_node_stays_as_it_is() -> None:
    """Both rules try on a copy."""
    node_info, node = nominated(4, 8), CandidateNode(N)
    lower = [(PodUid("uid-p0"), kind(4)), (PodUid("uid-p1"), kind(8))]
    assert giving_way(node_info, node, kind(16), lower) == ["uid-p0", "uid-p1"]
    assert nomination_stands(node_info, node, kind(8), PodUid("uid-p1"))
    assert set(node_info.allocations) == {"uid-p0", "uid-p1"}


def test_every_constraint_that_is_not_evaluated_is_named() -> None:
    """In one sentence."""
    spec = {
        "resourceClaims": [{}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {}}],
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
    }
    words = left_to_scheduler(pending(read(spec))).split(", ")
    assert sorted(words) == ["resource claims", "topology spread constraints", "volumes"]


def test_a_gate_is_named_before_a_deletion() -> None:
    """A pod may have both."""
    both = pending(PodConstraints(), gated=True, terminating=True)
    assert left_to_scheduler(both) == "it has scheduling gates"
