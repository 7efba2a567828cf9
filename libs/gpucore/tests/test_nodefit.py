"""Which nodes admit a pod: kube-scheduler's own rules, and how a pod object states them."""

import json
from typing import Any

import pytest
from corebuilders import NAMES, ledger, limits, make_gpus, pod, pod_request, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.explain.sentences import sentence
from gpucore.kubescheduler.node_fit import constraint_refusals, pods_admitted
from gpucore.model import Code
from gpucore.model.constraints import CandidateNode, PodConstraints, Taint
from gpucore.scheduling.fit import admit
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
from gpucore.units import NodeName
from gpucore.wire.constraints import candidate_node, pod_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.node.spec import decode_node

N = NodeName("n")
ML = Taint("dedicated", "ml", "NoSchedule")


def constraints(**spec: Any) -> PodConstraints:
    """What a pod of this specification requires."""
    return pod_constraints(json.dumps({"metadata": {}, "spec": spec}).encode(), NAMES)


def container(**resources: Any) -> dict[str, Any]:
    """A container with these requests."""
    return {"name": "c", "resources": {"requests": resources}}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """A required node affinity of these terms."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {key: {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A term of one expression on a label."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def codes(node: CandidateNode, pod_constraints: PodConstraints) -> list[Code]:
    """Every reason of kube-scheduler's own."""
    return [refusal.code for refusal in constraint_refusals(node, pod_constraints)]


@pytest.mark.parametrize(
    ("term", "admitted"),
    [
        (expression("gpu", "In", "t4", "a10"), True),
        (expression("gpu", "In", "a10"), False),
        (expression("gpu", "NotIn", "a10"), True),
        (expression("gpu", "NotIn", "t4"), False),
        (expression("other", "NotIn", "t4"), True),
        (expression("gpu", "Exists"), True),
        (expression("other", "Exists"), False),
        (expression("other", "DoesNotExist"), True),
        (expression("gpu", "DoesNotExist"), False),
        (expression("size", "Gt", "3"), True),
        (expression("size", "Gt", "4"), False),
        (expression("size", "Lt", "5"), True),
        (expression("odd", "Gt", "5"), False),
        (expression("size", "Lt", "1_0"), False),
        (expression("gpu", "Lt", "5"), False),
        (expression("gpu", "Unheard", "t4"), False),
        ({}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}, False),
    ],
)
def test_node_affinity_means_what_the_api_defines(term: dict[str, Any], *, admitted: bool) -> None:
    """Every operator means what the API defines; a term without requirements matches no node."""
    node = CandidateNode(N, labels={"gpu": "t4", "size": "4", "odd": "1_0"})
    assert codes(node, constraints(affinity=required(term))) == (
        [] if admitted else [Code.NODE_AFFINITY]
    )


def test_one_term_of_an_affinity_is_enough() -> None:
    """Terms are alternatives, the expressions of a term are not."""
    node = CandidateNode(N, labels={"gpu": "t4"})
    other, mine = expression("gpu", "In", "a10"), expression("gpu", "In", "t4")
    assert codes(node, constraints(affinity=required(other, mine))) == []
    both = {"matchExpressions": mine["matchExpressions"] + other["matchExpressions"]}
    assert codes(node, constraints(affinity=required(both))) == [Code.NODE_AFFINITY]
    assert codes(node, constraints(affinity=required())) == [Code.NODE_AFFINITY]


def test_the_node_selector_names_what_is_lacking() -> None:
    """Only the labels that the node lacks are named."""
    node = CandidateNode(N, labels={"gpu": "t4"})
    pod_constraints = constraints(nodeSelector={"gpu": "t4", "disktype": "ssd"})
    (refusal,) = constraint_refusals(node, pod_constraints)
    assert refusal.unresolvable
    assert sentence(refusal) == (
        "The node does not match the pod's nodeSelector or required node affinity: "
        "nodeSelector disktype=ssd"
    )


@pytest.mark.parametrize(
    ("toleration", "admitted"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "ml"}, True),
        ({"key": "dedicated", "value": "web"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Equal", "value": "ml"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_and_tolerations(toleration: dict[str, Any], *, admitted: bool) -> None:
    """A taint keeps off every pod but those that tolerate it, by the API's rules."""
    node = CandidateNode(N, taints=(ML,))
    assert codes(node, constraints(tolerations=[toleration])) == (
        [] if admitted else [Code.TAINT_NOT_TOLERATED]
    )


def test_a_soft_taint_keeps_nobody_off() -> None:
    """PreferNoSchedule is a preference."""
    soft = CandidateNode(N, taints=(Taint("dedicated", "ml", "PreferNoSchedule"),))
    assert codes(soft, PodConstraints()) == []


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (CandidateNode(N, unschedulable=True), "the node is cordoned"),
        (CandidateNode(N, ready=False), "the node is not ready"),
        (
            CandidateNode(
                N,
                ready=False,
                taints=(Taint("node.kubernetes.io/unreachable", effect="NoExecute"),),
            ),
            "the node is not ready",
        ),
    ],
)
def test_cordoned_and_unready_nodes(node: CandidateNode, words: str) -> None:
    """They are refused once, by field or by the node controller's taint, unless tolerated."""
    (refusal,) = constraint_refusals(node, PodConstraints())
    assert (refusal.code, refusal.detail) == (Code.NODE_UNSCHEDULABLE, words)
    assert codes(node, constraints(tolerations=[{"operator": "Exists"}])) == []


def test_requests_are_counted_as_the_scheduler_counts_them() -> None:
    """The larger of containers with sidecars and each init container, and overhead on top."""
    pod_constraints = constraints(
        containers=[container(cpu="500m", memory="1Gi"), container(cpu="1")],
        initContainers=[
            {**container(cpu="250m"), "restartPolicy": "Always"},
            container(cpu="2", memory="512Mi"),
        ],
        overhead={"cpu": "100m"},
    )
    assert dict(pod_constraints.requests) == {"cpu": 2350, "memory": 2**30}


def test_limits_stand_for_missing_requests() -> None:
    """As the API server fills them in; resources of ours are not counted here."""
    resources = {"limits": {**limits(mem=4, core=5, gpus=1), "cpu": "2", "nvidia.com/gpu": "1"}}
    pod_constraints = constraints(containers=[{"name": "c", "resources": resources}])
    assert dict(pod_constraints.requests) == {"cpu": 2000, "nvidia.com/gpu": 1}


def test_requests_of_the_pod_replace_those_of_its_containers() -> None:
    """Resources of the pod as a whole are what the scheduler counts."""
    pod_constraints = constraints(
        containers=[container(cpu="1")], resources={"requests": {"cpu": "4"}}
    )
    assert dict(pod_constraints.requests) == {"cpu": 4000}


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"cpu": "3"}, "Insufficient cpu: requested 3, 2.5 of 4 free"),
        ({"memory": "3Gi"}, "Insufficient memory: requested 3 GiB, 2 GiB of 8 GiB free"),
        ({"rdma/hca": "1"}, "Insufficient rdma/hca: requested 1, 0 of 0 free"),
        ({"cpu": "2500m", "memory": "2Gi"}, ""),
    ],
)
def test_requests_against_what_is_left(requests: dict[str, str], words: str) -> None:
    """Allocatable minus the requests of bound pods is what a pod may request."""
    node = CandidateNode(
        N,
        allocatable={"cpu": 4000, "memory": 8 * 2**30, "pods": 110},
        requested={"cpu": 1500, "memory": 6 * 2**30},
    )
    refusals = list(constraint_refusals(node, constraints(containers=[container(**requests)])))
    assert [sentence(refusal) for refusal in refusals] == ([words] if words else [])


def test_more_than_the_node_has_is_unresolvable() -> None:
    """No eviction makes room for a request above what is allocatable."""
    node = CandidateNode(N, allocatable={"cpu": 4000}, requested={"cpu": 4000})
    requested = [constraints(containers=[container(cpu=amount)]) for amount in ("1", "5")]
    refusals = [next(constraint_refusals(node, each)) for each in requested]
    assert [refusal.unresolvable for refusal in refusals] == [False, True]


def test_the_number_of_pods_counts() -> None:
    """A node takes as many pods as kubelet reports."""
    node = CandidateNode(N, allocatable={"pods": 2}, pods=1)
    assert codes(node, PodConstraints()) == []
    assert codes(node.plus(()), PodConstraints()) == [Code.INSUFFICIENT_RESOURCES]


def test_a_node_that_reports_no_cpu_is_no_reason() -> None:
    """A file made by hand has no cpu, memory and pods: nothing is concluded from that."""
    assert codes(CandidateNode(N), constraints(containers=[container(cpu="8", memory="1Gi")])) == []


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"affinity": {"podAffinity": {}}}, ""),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ""),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topology spread constraints",
        ),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}, "volumes"),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "host ports"),
        ({"resourceClaims": [{"name": "x"}]}, "resource claims"),
    ],
)
def test_constraints_that_are_not_evaluated_are_named(spec: dict[str, Any], name: str) -> None:
    """Hard rules that only the scheduler evaluates are recognised; soft ones are not named."""
    assert constraints(**spec).unsupported == ((name,) if name else ())


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_affinity_between_pods_is_named(kind: str) -> None:
    """Required inter-pod affinity and anti-affinity are recognised."""
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    name = {"podAffinity": "inter-pod affinity", "podAntiAffinity": "inter-pod anti-affinity"}
    assert constraints(affinity={kind: rule}).unsupported == (name[kind],)


def test_scheduling_gates_are_read() -> None:
    """Their names are kept."""
    assert constraints(schedulingGates=[{"name": "example.com/quota"}]).gates == (
        "example.com/quota",
    )


def test_long_constraints_are_cut_in_the_reason() -> None:
    """The reason is repeated for each node, so it has at most 500 characters of the selector."""
    long = constraints(nodeSelector={f"k{n:03}": "v" * 60 for n in range(100)})
    (refusal,) = constraint_refusals(CandidateNode(N), long)
    assert refusal.detail.startswith("nodeSelector k000=vvv")
    assert len(refusal.detail) == 503


@pytest.mark.parametrize("text", ["{", '{"spec": 3}', '{"spec": {"nodeSelector": ["x"]}}'])
def test_what_is_no_pod(text: str) -> None:
    """Bytes that are no pod are an error of the wire."""
    with pytest.raises(WireError):
        pod_constraints(text.encode(), NAMES)


def test_a_node_object_as_a_candidate() -> None:
    """Taints and allocatable are read; the requests of bound pods are summed."""
    raw = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "1Ki", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    found = candidate_node(decode_node(json.dumps(raw).encode()), [(("cpu", 500),), ()])
    assert found == CandidateNode(
        N,
        labels={"a": "b"},
        taints=(ML,),
        allocatable={"cpu": 3920, "memory": 1024, "pods": 110},
        requested={"cpu": 500},
        pods=2,
    )


def test_gpus_are_reported_first_only_where_the_node_has_none_for_the_pod() -> None:
    """A node without shares is that, whatever its taints; else the scheduler's rules come first."""
    book = ledger(share_node("n", make_gpus(15)), decode_node(b'{"metadata": {"name": "cpu"}}'))
    tainted = CandidateNode(N, taints=(ML,))
    requested = pod_request(pod("p", 16))
    verdicts = [
        admit(book.nodes()[NodeName(name)], requested, tainted, PodConstraints())
        for name in ("n", "cpu")
    ]
    assert [verdict and verdict.code for verdict in verdicts] == [
        Code.TAINT_NOT_TOLERATED,
        Code.NOT_SHARED,
    ]
    free = admit(book.nodes()[N], requested, CandidateNode(N), PodConstraints())
    assert free is not None
    assert free.code is Code.TOO_LARGE


def test_pods_that_were_placed_use_up_cpu() -> None:
    """In a what-if the first pod's requests are counted against the second's."""
    book = ledger(share_node("n", make_gpus(15)))
    nodes = {N: CandidateNode(N, allocatable={"cpu": 3000})}
    pod_constraints = PodConstraints(requests=(("cpu", 2000),))
    whatif_pods = [
        WhatIfPod(name, pod_request(pod(name, 2)), pod_constraints) for name in ("a", "b")
    ]
    cluster = SimulatedCluster(book.nodes(), nodes=nodes)
    first, second = (cluster.grant(each) for each in whatif_pods)
    assert first.placement is not None
    assert sentence(second.refusals[N]) == "Insufficient cpu: requested 2, 1 of 3 free"


def test_the_taint_that_is_there_is_the_one_to_tolerate() -> None:
    """A pod that tolerates the node controller's own taint is admitted, as by the scheduler."""
    unreachable = Taint("node.kubernetes.io/unreachable", effect="NoExecute")
    node = CandidateNode(N, ready=False, taints=(unreachable,))
    tolerates = {"key": unreachable.key, "operator": "Exists", "effect": "NoExecute"}
    assert codes(node, constraints(tolerations=[tolerates])) == []
    assert codes(CandidateNode(N, ready=False), constraints(tolerations=[tolerates])) == [
        Code.NODE_UNSCHEDULABLE
    ]


@given(
    cpu=st.integers(0, 6),
    limit=st.integers(0, 4),
    requested=st.integers(0, 3),
    held=st.integers(0, 2),
    cordoned=st.booleans(),
)
def test_the_number_of_equal_pods_is_what_adding_them_one_by_one_gives(
    cpu: int, limit: int, requested: int, held: int, *, cordoned: bool
) -> None:
    """For a gang, whose pods are placed on a node together."""
    offered = {"cpu": cpu, "pods": limit}
    node = CandidateNode(N, unschedulable=cordoned, allocatable=offered, requested={"cpu": held})
    pod_constraints = PodConstraints(requests=(("cpu", requested),))
    most, count = 3, 0
    filled = node
    while count < most and not codes(filled, pod_constraints):
        filled, count = filled.plus(pod_constraints.requests), count + 1
    assert pods_admitted(node, pod_constraints, most) == count
