"""What the webhook decides about a pod: refuse it, set its scheduler, warn its author."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest
from decoded import a_node, a_pod, state_of
from objects import Object, node, pod

from gpucore.accounting.node_info import NodeInfo
from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import decode_node
from gpuextender import metrics
from gpuextender.health import Readiness
from gpuextender.state import State
from gpuextender.webhook import (
    MOST_CONTAINERS,
    AdmissionAnswer,
    AdmissionWebhook,
    SchedulerChoice,
    review_debug_containers,
    review_pod,
)

OURS = "gpushare-scheduler"
STEERED = AdmissionAnswer(scheduler=OURS)


def node_infos(*nodes: Object) -> Sequence[NodeInfo]:
    """The state of these nodes."""
    decoded = (decode_node(json.dumps(item).encode()) for item in nodes)
    return tuple(state_of(*decoded).ledger.nodes().values())


GIB = node_infos(node("n", 15, unit="GiB"))
"""A node with one GPU of 15 GiB, in units of one GiB."""


def judged(
    item: Object,
    *,
    namespace: str = "default",
    nodes: Collection[NodeInfo] = (),
    scheduler: str = OURS,
) -> AdmissionAnswer:
    """The decision on a new pod."""
    found = a_pod(item)
    profiles = SchedulerProfiles(scheduler)
    return review_pod(
        found,
        namespace=namespace,
        node_infos=nodes,
        names=DEFAULT_NAMES,
        choice=SchedulerChoice(State(DEFAULT_NAMES), profiles, lambda: True),
    )


class Counted(Collection[NodeInfo]):
    """Nodes that count how many of them are looked at."""

    def __init__(self, nodes: Sequence[NodeInfo]) -> None:
        self._nodes = nodes
        self.seen = 0

    def __contains__(self, item: object) -> bool:
        return item in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeInfo]:
        for node_info in self._nodes:
            self.seen += 1
            yield node_info


@pytest.mark.parametrize(("amount", "seen"), [(15, 1), (16, 5000)])
def test_a_request_that_fits_the_first_node_is_reviewed_without_the_others(
    amount: int, seen: int
) -> None:
    """In a cluster of thousands of nodes a look at each took longer than all else."""
    nodes = Counted(tuple(GIB) * 5000)
    assert judged(pod("p", amount), nodes=nodes) == STEERED
    assert nodes.seen == seen


def on(item: Object, **spec: Any) -> Object:
    """The pod with these fields of its specification."""
    return item | {"spec": item["spec"] | spec}


def choosing(name: str = "NVIDIA_VISIBLE_DEVICES") -> Object:
    """A container that sets a variable."""
    return {"name": "x", "env": [{"name": name, "value": "all"}]}


@pytest.mark.parametrize(
    ("amount", "request_instead"),
    [(1023, 0), (1024, 1), (1025, 2), (14 * 1024 + 1, 15), (15 * 1024, 15), (15 * 1024 + 1, 0)],
)
def test_an_amount_in_mib_is_recognised_by_what_would_fit(
    amount: int, request_instead: int
) -> None:
    """From one unit in MiB up to the largest GPU, rounded up; other amounts wait silently."""
    hint = judged(pod("p", amount), nodes=GIB).unit_hint
    expected = (
        f"this pod requests {amount} aliyun.com/gpu-mem, the largest GPU has 15: "
        f"if you meant MiB, request {request_instead}"
    )
    assert hint == (expected if request_instead else "")


def test_the_amount_of_one_gpu_is_compared() -> None:
    """A pod of several GPUs divides its amount over them; the hint has the amounts of the pod."""
    item = pod("p", 4096)
    item["metadata"]["labels"] = {"aliyun.com/gpu-count": "2"}
    assert judged(item, nodes=GIB).unit_hint == (
        "this pod requests 4096 aliyun.com/gpu-mem over 2 GPUs, the largest GPU has 15: "
        "if you meant MiB, request 4"
    )


def test_an_amount_that_fits_some_gpu_is_meant_so() -> None:
    """A node that counts in MiB has GPUs as large as that."""
    mixed = node_infos(node("n", 15, unit="GiB"), node("m", 16384, unit="MiB"))
    assert judged(pod("p", 8192), nodes=mixed) == STEERED
    assert judged(pod("p", 17000), nodes=node_infos(node("m", 16384, unit="MiB"))) == STEERED


def test_without_known_nodes_nothing_is_compared() -> None:
    """While the cluster is not known no author is warned."""
    assert judged(pod("p", 8192)) == STEERED


@pytest.mark.parametrize("name", ["", "default-scheduler"])
def test_a_pod_without_a_scheduler_of_its_own_gets_ours(name: str) -> None:
    """The API server has filled in the default, or nothing."""
    assert judged(on(pod("p", 2), schedulerName=name)) == STEERED


def test_the_warning_and_the_scheduler_come_together() -> None:
    """A pod with a wrong unit is still placed by our scheduler."""
    found = judged(pod("p", 8192), nodes=GIB)
    assert (found.scheduler, bool(found.unit_hint), found.refusal) == (OURS, True, "")


def test_a_wrong_unit_is_named_whoever_places_the_pod() -> None:
    """A pod with a scheduler of its own has both mistakes; one hides no other."""
    found = judged(on(pod("p", 8192), schedulerName="volcano"), nodes=GIB)
    assert found.unit_hint.endswith("if you meant MiB, request 8")
    assert found.warnings == judged(on(pod("p", 2), schedulerName="volcano")).warnings


@pytest.mark.parametrize(
    "item",
    [on(pod("p", 2), nodeName="n"), on(pod("p", 2), schedulerName=OURS), pod("p")],
    ids=["has a node", "has ours", "requests nothing"],
)
def test_pods_that_need_no_scheduler_of_ours_pass_untouched(item: Object) -> None:
    """A static pod names its node, and a pod without GPUs is not ours to change."""
    assert judged(item) == AdmissionAnswer()


def test_where_every_scheduler_calls_the_extender_pods_keep_theirs() -> None:
    """In mode extender no scheduler is set, and none is warned about."""
    for name in ("", "default-scheduler", "volcano"):
        assert judged(on(pod("p", 2), schedulerName=name), scheduler="") == AdmissionAnswer()


def test_a_foreign_scheduler_is_warned_about() -> None:
    """The pod keeps it, for it may call the extender too."""
    found = judged(on(pod("p", 2), schedulerName="volcano"))
    warning = (
        f"scheduler volcano places this pod: unless it calls the gpushare extender, use {OURS}"
    )
    assert found == AdmissionAnswer(warnings=(warning,))


@pytest.mark.parametrize(
    ("amount", "core", "count", "refused"),
    [(4, 0, 2, False), (3, 0, 2, True), (4, 30, 2, False), (4, 31, 2, True)],
)
def test_memory_and_compute_divide_over_the_gpus(
    amount: int, core: int, count: int, *, refused: bool
) -> None:
    """Each GPU gives an equal part of both."""
    item = pod("p", amount, core=core)
    item["metadata"]["labels"] = {"aliyun.com/gpu-count": str(count)}
    expected = f"requests an amount that does not divide evenly over its {count} GPUs"
    assert judged(item).refusal == (expected if refused else "")


@pytest.mark.parametrize("place", ["containers", "initContainers"])
@pytest.mark.parametrize(
    "limits",
    [{"aliyun.com/gpu-mem": "2"}, {"aliyun.com/gpu": "1"}],
    ids=["share", "exclusive"],
)
def test_a_pod_has_gpus_of_one_plugin(place: str, limits: Object) -> None:
    """NVIDIA's resource in any container of the pod would allocate GPUs a second time."""
    item = pod("p")
    item["spec"]["containers"][0]["resources"]["limits"] = limits
    beside = {"name": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    item["spec"].setdefault(place, []).append(beside)
    [name] = limits
    expected = f"requests {name} and nvidia.com/gpu, which would allocate GPUs twice: use one"
    assert judged(item).refusal == expected


def test_a_pod_of_the_other_plugin_alone_passes() -> None:
    """It requests nothing of ours."""
    item = pod("p")
    item["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert judged(item) == AdmissionAnswer()


def test_the_clusters_own_namespace_is_exempt() -> None:
    """Whatever its pods set or request, also in a container for debugging."""
    item = on(pod("p", 2), ephemeralContainers=[choosing()])
    item["spec"]["containers"].append(choosing())
    assert judged(item, namespace="kube-system") == AdmissionAnswer()
    for namespace, refused in (("kube-system", False), ("default", True)):
        found = review_debug_containers(a_pod(item), None, namespace=namespace, names=DEFAULT_NAMES)
        assert bool(found.refusal) is refused


@pytest.mark.parametrize(("amount", "refused"), [(0, False), (2, True)])
def test_a_debug_container_may_set_limits_where_there_is_no_share(
    amount: int, *, refused: bool
) -> None:
    """The variables of MPS belong to whoever runs it; only a share is widened by them."""
    item = pod("p", amount) if amount else pod("p")
    item = on(item, ephemeralContainers=[choosing("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")])
    found = review_debug_containers(a_pod(item), None, namespace="default", names=DEFAULT_NAMES)
    assert bool(found.refusal) is refused


class Informer:
    """An informer whose age a test sets."""

    name = "nodes"
    confirmed = True
    age = 0.0

    async def wait_for_confirmation(self) -> None:
        raise AssertionError("the webhook waits for nothing")


def webhook(state: State, informer: Informer) -> AdmissionWebhook:
    """A webhook over this state."""
    health = Readiness([informer], stale_after=60.0)
    health.loaded = True
    return AdmissionWebhook(state, health, profiles=SchedulerProfiles(OURS))


def review(item: Object, **more: Any) -> bytes:
    """A review as the API server sends it."""
    return json.dumps({"request": {"uid": "r", "namespace": "d", "object": item, **more}}).encode()


@pytest.mark.parametrize(
    ("more", "namespace", "allowed"),
    [(0, "default", True), (1, "default", False), (1, "kube-system", True)],
)
def test_a_pod_may_have_as_many_containers_as_are_reviewed(
    *, more: int, namespace: str, allowed: bool
) -> None:
    """One more is refused, but not in the cluster's own namespace."""
    item = pod("p", 2)
    item["spec"]["containers"] += [{"name": "c"}] * (MOST_CONTAINERS - 1 + more)
    hook = webhook(state_of(), Informer())
    response = hook.review(review(item, namespace=namespace))["response"]
    assert response["allowed"] is allowed


def test_an_old_view_of_the_cluster_warns_nobody() -> None:
    """A larger GPU may have come since; the pod itself is still judged."""
    informer = Informer()
    hook = webhook(state_of(a_node("n", 15)), informer)
    assert "warnings" in hook.review(review(pod("p", 8192)))["response"]
    informer.age = 61.0
    response = hook.review(review(pod("p", 8192)))["response"]
    assert (response["allowed"], "warnings" in response) == (True, False)
    both = pod("p", 2, gpus=1)
    assert not hook.review(review(both))["response"]["allowed"]


@pytest.mark.parametrize(
    ("item", "result"),
    [(pod("p", 2), "steered"), (pod("p"), "passed"), (pod("p", 2, gpus=1), "refused")],
)
def test_each_decision_is_counted_by_its_kind(item: Object, result: str) -> None:
    """Alerts and dashboards tell refusals from pods that passed."""
    counts = {name: metrics.ADMISSIONS.labels(name) for name in ("steered", "passed", "refused")}
    before = {name: one._value.get() for name, one in counts.items()}
    webhook(state_of(), Informer()).review(review(item))
    rises = {name: one._value.get() - before[name] for name, one in counts.items()}
    assert rises == {**dict.fromkeys(counts, 0.0), result: 1.0}


def test_a_refusal_is_an_invalid_object() -> None:
    """The status is the one that kubectl shows for a wrong object."""
    found = webhook(state_of(), Informer()).review(review(pod("p", 2, gpus=1)))
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = found["response"]
    assert (response["uid"], response["allowed"]) == ("r", False)
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    assert response["status"]["message"].startswith("gpushare: ")
    assert "patch" not in response


def offering_claims(name: str) -> Object:
    """A node that offers its GPUs as claims, by its inventory."""
    item = node(name, 15, unit="GiB")
    inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
    item["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(
        inventory | {"api": "claims"}
    )
    item["status"] = {"capacity": {"cpu": "8"}}
    return item


def exclusive(name: str) -> Object:
    """A pod that requests two exclusive GPUs."""
    item = pod(name, 0)
    limits = {"aliyun.com/gpu": "2"}
    return on(item, containers=[{"name": "c", "resources": {"limits": limits}}])


def test_exclusive_gpus_that_only_claims_offer_are_left_to_the_scheduler_of_the_pod() -> None:
    """Kubernetes makes a claim of the extended resource; the extender knows no such node."""
    claims = node_infos(offering_claims("c"))
    assert judged(exclusive("p"), nodes=claims) == AdmissionAnswer()
    assert judged(pod("q", 2), nodes=claims) == STEERED, "a share has no such claim"
    both = node_infos(offering_claims("c"), with_exclusive("d"))
    assert judged(exclusive("p"), nodes=both) == STEERED
    assert judged(exclusive("p")) == STEERED, "the state is not known"


def with_exclusive(name: str) -> Object:
    """A node whose device plugin offers exclusive GPUs."""
    item = node(name, 15, unit="GiB")
    item["status"]["capacity"] |= {"aliyun.com/gpu": "1"}
    return item
