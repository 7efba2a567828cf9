"""New pods get the recommended size only where everything about them and the cluster is certain."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucore.model import PodRequest
from gpucore.sizing.evidence import DAY, SizingRules
from gpucore.sizing.initial_size import SizablePod, SizingConditions, initial_size, sizable_pod
from gpucore.sizing.share_size import ContainerSize
from gpucore.sizing.sizing_options import SizingMode, SizingOptions
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.controllers import Controller
from gpucore.wire.pod.spec import Container, Pod
from gpucore.wire.whole_requests import pod_request_of

MEM = "aliyun.com/gpu-mem"
BYTES = 1 << 30
KEY = WorkloadKey("team", "Deployment", "web", "main")
INITIAL = SizingOptions(SizingMode.INITIAL)
CLUSTER = SizingConditions(GIB, {24, 80})
REPLICAS = Controller("apps/v1", "ReplicaSet", "web-abc", "u", controller=True)


def history(
    *used: float,
    requested: int = 16,
    limit: int = 0,
    out_of_memory: int = 0,
    days: float = 8,
    key: WorkloadKey = KEY,
) -> UsageHistory:
    """Samples in GiB over some days."""
    found = UsageHistory(key, pods=3, starts=12, out_of_memory=out_of_memory)
    for each in used:
        found.record(
            1000.0,
            int(each * BYTES),
            requested_bytes=requested * BYTES,
            limit_bytes=limit * BYTES,
        )
    found.last_seen = 1000.0 + days * DAY
    return found


def sized(
    *histories: UsageHistory,
    request: int = 16,
    burst: int = 0,
    options: SizingOptions = INITIAL,
    **conditions: Any,
) -> ContainerSize | None:
    """The new size of a pod."""
    pod = SizablePod(KEY, 0, ContainerSize(request, burst))
    return initial_size(pod, options, histories, replace(CLUSTER, **conditions))


def test_a_pod_gets_what_its_workload_was_measured_to_need() -> None:
    """The highest peak and the margin."""
    assert sized(history(2, 3, 6)) == ContainerSize(7)
    assert sized(history(2, 3, 6), rules=SizingRules(margin=50)) == ContainerSize(9)


@pytest.mark.parametrize("mode", [SizingMode.OFF, SizingMode.RECOMMEND])
def test_nothing_is_applied_without_opt_in(mode: SizingMode) -> None:
    """Only the mode initial changes a pod."""
    assert sized(history(6), options=SizingOptions(mode)) is None
    assert sized(history(6), options=replace(INITIAL, fault="no number")) is None


def test_nothing_is_applied_without_a_history_or_a_recommendation() -> None:
    """Unknown, measured too short, or a server that takes all of its share."""
    assert sized() is None
    assert sized(history(6, days=0.1)) is None
    assert sized(history(15, 15)) is None
    assert sized(history(6), history(15, 15)) is None


def test_nothing_is_applied_where_the_owner_changed_the_request_since() -> None:
    """The history is that of another size, and a server may need what it newly requests."""
    assert sized(history(6, requested=8)) is None
    assert sized(history(6, limit=20)) is None
    assert sized(history(6), request=20) is None


def test_the_largest_of_several_reads_counts() -> None:
    """Each may have missed a node."""
    assert sized(history(6), history(9)) == ContainerSize(11)


def test_no_size_is_above_the_request_without_bounds_that_allow_it() -> None:
    """A pod that needs more is left as it is."""
    assert sized(history(4, 20)) is None
    assert sized(history(4, 14), options=replace(INITIAL, most=16)) is None
    assert sized(history(4, 20), options=replace(INITIAL, most=40)) == ContainerSize(23)
    assert sized(history(4, 20), options=replace(INITIAL, most=18)) == ContainerSize(18)


def test_a_pod_that_ran_out_of_memory_is_raised_at_once_within_its_bounds() -> None:
    """However short it was measured."""
    killed = history(15, days=0.01)
    killed.fail(killed.last_seen, 16 << 30)
    assert sized(killed) is None
    assert sized(killed, options=replace(INITIAL, most=40)) == ContainerSize(20)


def test_a_minimum_is_kept() -> None:
    """Also one above the request, which the owner set."""
    assert sized(history(3), options=replace(INITIAL, least=10)) == ContainerSize(10)
    assert sized(history(3), options=replace(INITIAL, least=18)) == ContainerSize(18)


def test_a_maximum_below_the_need_changes_nothing() -> None:
    """The pod would run out of memory."""
    assert sized(history(6), options=replace(INITIAL, most=4)) is None
    assert sized(history(6), options=replace(INITIAL, most=7)) == ContainerSize(7)


def test_a_quota_of_gpu_memory_leaves_no_room_for_a_raise() -> None:
    """The raise, or the next pod of the namespace, would be refused; a shrink is charged less."""
    generous = replace(INITIAL, most=40)
    assert sized(history(4, 20), options=generous, may_raise=False) is None
    assert sized(history(6), options=generous, may_raise=False) == ContainerSize(7)
    burst = history(*[4] * 40, 20, requested=8, limit=16)
    found = sized(burst, request=8, burst=16, options=generous, may_raise=False)
    assert found == ContainerSize(5, 23)


def test_no_pod_is_shrunk_while_a_node_is_missing() -> None:
    """Its peak may have been there; more memory is given all the same."""
    generous = replace(INITIAL, most=40)
    assert sized(history(6), may_shrink=False) is None
    assert sized(history(4, 20), options=generous, may_shrink=False) == ContainerSize(23)
    burst = history(*[4] * 40, 20, requested=8, limit=16)
    found = sized(burst, request=8, burst=16, options=generous, may_shrink=False)
    assert found == ContainerSize(8, 23)


def test_a_raised_pod_fits_every_gpu_that_it_fitted_before() -> None:
    """Its node selector may allow the smallest of them only."""
    assert sized(history(4, 30), options=replace(INITIAL, most=60)) == ContainerSize(24)
    assert sized(history(3), options=replace(INITIAL, least=60)) == ContainerSize(24)


@pytest.mark.parametrize("request_units", [24, 80, 81])
def test_a_pod_with_all_memory_of_a_gpu_keeps_it(request_units: int) -> None:
    """A history does not tell it from an exclusive GPU."""
    assert sized(history(6, requested=request_units), request=request_units) is None


def test_without_a_unit_or_gpus_nothing_is_applied() -> None:
    """Nodes that count in different units, or none that is known."""
    assert sized(history(6), unit=None) is None
    assert sized(history(6), gpu_sizes=()) is None


def test_request_and_burst_limit_are_recommended_together() -> None:
    """The request covers a percentile, the limit the peak."""
    burst = history(*[4] * 40, 10, requested=8, limit=20)
    assert sized(burst, request=8, burst=20) == ContainerSize(5, 12)


def test_a_burst_limit_is_not_raised_without_a_bound() -> None:
    """As the request."""
    burst = history(*[4] * 40, 20, requested=8, limit=16)
    assert sized(burst, request=8, burst=16) == ContainerSize(5, 16)


def test_a_pod_with_a_burst_limit_keeps_one() -> None:
    """Without it the pod would no longer demand that the driver limits it."""
    assert sized(history(3, 3, requested=8, limit=20), request=8, burst=20) is None


BOUNDS = st.tuples(st.integers(0, 100), st.integers(0, 100)).filter(
    lambda pair: pair[0] <= pair[1] or not pair[1]
)


@given(
    used=st.lists(st.floats(0, 100), min_size=1, max_size=6),
    current=st.builds(ContainerSize, st.integers(1, 90), st.sampled_from([0, 0, 95])),
    bounds=BOUNDS,
    conditions=st.builds(
        SizingConditions,
        st.just(GIB),
        st.just((24, 80)),
        may_raise=st.booleans(),
        may_shrink=st.booleans(),
    ),
    out_of_memory=st.integers(0, 1),
)
def test_every_applied_size_keeps_all_rules(
    used: list[float],
    current: ContainerSize,
    bounds: tuple[int, int],
    conditions: SizingConditions,
    out_of_memory: int,
) -> None:
    """Whatever was measured and whatever the owner wrote."""
    request, most = current.request, max(current.request, *bounds)
    measured = history(*used, requested=request, limit=current.burst, out_of_memory=out_of_memory)
    options = SizingOptions(SizingMode.INITIAL, *bounds)
    found = initial_size(SizablePod(KEY, 0, current), options, [measured], conditions)
    if found is None:
        return
    assert found != current
    assert 1 <= found.request <= min(most, *(size for size in (24, 80) if size >= request))
    assert found.request >= request or (conditions.may_shrink and found.request >= bounds[0])
    assert found.request <= request or conditions.may_raise
    assert bool(found.burst) == bool(current.burst)
    assert found.limit <= max(most, current.burst)
    if not current.burst:
        assert found.request >= min(request, max(used))


def pod(*containers: Container, **more: Any) -> Pod:
    """A new pod of a Deployment."""
    boxes = containers or (Container("main", {MEM: "16"}),)
    labels = {"pod-template-hash": "abc", **more.pop("labels", {})}
    return Pod(PodUid("u"), "team", "web-abc-1", containers=boxes, labels=labels, **more)


def sizable(found: Pod, controller: Controller | None = REPLICAS) -> SizablePod | None:
    """The pod where its size may change."""
    return sizable_pod(found, controller, DEFAULT_NAMES)


def test_the_one_container_with_a_share_is_found() -> None:
    """By its position, and by the workload of the pod in its own namespace."""
    found = sizable(pod(Container("proxy"), Container("main", {MEM: "16"})))
    assert found == SizablePod(KEY, 1, ContainerSize(16))
    burst = sizable(pod(annotations={"gpushare/memory-limit": "20"}))
    assert burst == SizablePod(KEY, 0, ContainerSize(16, 20))


def test_a_job_of_a_cronjob_is_found_by_its_time_of_creation() -> None:
    """The name of the Job has the minute in which it was due."""
    minute = Controller("batch/v1", "Job", "night-29000000", "u", controller=True)
    found = sizable(pod(creation="2025-02-19T21:20:30+00:00"), minute)
    assert found is not None
    assert (found.key.kind, found.key.name) == ("CronJob", "night")


SHARE = Container("main", {MEM: "16"})
LEFT_ALONE: Mapping[str, Pod] = {
    "exclusive GPUs": pod(Container("main", {"aliyun.com/gpu": "1"})),
    "a whole GPU": pod(labels={"ack.gpushare.placement": "require-whole-device"}),
    "several GPUs": pod(labels={"aliyun.com/gpu-count": "2"}),
    "several containers": pod(SHARE, Container("other", {MEM: "2"})),
    "an init container": pod(SHARE, init_containers=(Container("i", {MEM: "2"}),)),
    "a sidecar": pod(SHARE, init_containers=(Container("i", {MEM: "2"}, restart_policy="Always"),)),
    "compute alone": pod(Container("main", {"aliyun.com/gpu-core.percentage": "20"})),
    "a gang": pod(labels={"gpu-topology": "g", "gpu-topology-replica": "2"}),
    "a pod group of Kubernetes": pod(pod_group="g"),
    "claims": pod(claim_templates=("t",)),
    "a node": pod(node=NodeName("n")),
    "a limit of KAI": pod(annotations={"nvidia.com/container.main.gpu-memory.limit": "9"}),
    "a fault": pod(annotations={"gpushare/isolation": "strong"}),
    "no GPU": pod(Container("main")),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_pods_that_are_no_simple_share_keep_their_size(name: str) -> None:
    """What they use is not measured as theirs alone, or something else decides about it."""
    assert sizable(LEFT_ALONE[name]) is None


def test_a_pod_without_a_controller_keeps_its_size() -> None:
    """Its name is new each time, so a history of that name is of another pod."""
    assert sizable(pod(), None) is None


def test_a_faked_controller_stays_in_its_own_namespace() -> None:
    """Owner references are text of the tenant; the namespace is that of the request."""
    faked = Controller("apps/v1", "ReplicaSet", "web-abc", "not-its-uid", controller=True)
    found = sizable(replace(pod(), namespace="attacker"), faked)
    assert found is not None
    assert found.key.namespace == "attacker"


def test_the_new_size_is_accounted_as_any_request() -> None:
    """The scheduler reads the same pod as if its owner had requested that size."""
    resized = pod(
        Container("main", {MEM: "5"}),
        annotations={"gpushare/memory-limit": "12", "gpushare/original-memory": "8"},
    )
    request = pod_request_of(resized, DEFAULT_NAMES)
    assert isinstance(request, PodRequest)
    assert (request.mem, request.burst, request.fault) == (5, 12, "")
