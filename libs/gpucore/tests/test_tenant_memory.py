"""What a tenant wrote takes no memory once its pods are gone, whatever their size and number."""

import gc
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from corebuilders import NAMES, share_node

from gpucore.accounting.claims import ClaimAccounts
from gpucore.accounting.ledger import Ledger
from gpucore.claims.pending import PendingClaimPods
from gpucore.claims.selectors import select
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model import Gpu, Inventory
from gpucore.scheduling.host_rooms import arrival_of
from gpucore.scheduling.pending_pods import PendingPods, UnscheduledPod
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire import names as wire_names
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.constraints import decode_pod
from gpucore.wire.node.matrices import encode_annotation, matrix_of
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpucore.workload.history import PodHistory

PODS = 10
MOST_BYTES = 300_000
"""Left of all of them together; each has about as much by itself."""


def a_pod(number: int, *containers: Mapping[str, str], **metadata: Any) -> Pod:
    """A pod that is bound, with containers of these limits."""
    boxes = [{"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(containers)]
    item = {
        "metadata": {"name": "p", "namespace": "tenant", "uid": f"u{number}", **metadata},
        "spec": {"containers": boxes, "nodeName": "n"},
        "status": {"phase": "Running"},
    }
    return decode_pod(msgspec.json.encode(item))


def kept_bytes(happens: Callable[[int], object]) -> int:
    """What is left of the memory that as many events took."""
    happens(-1)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(PODS):
            happens(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def annotated(key: str, number: int) -> Pod:
    """A pod whose annotation has as many bytes as the API server takes."""
    text = f"{number}-" + "x" * 250_000
    return a_pod(number, {NAMES.gpu_mem: "1"}, annotations={key: text})


def labelled(number: int) -> Pod:
    """A pod with a label that no API server accepts: a webhook reads it before that is checked."""
    label = {wire_names.LABEL_REQUIRE_WHOLE: f"{number}-" + "x" * 250_000}
    return a_pod(number, {NAMES.gpu_mem: "1"}, labels=label)


def of_long_resources(number: int) -> Pod:
    """A pod with a resource that no API server accepts."""
    return a_pod(number, {NAMES.gpu_mem: "1", f"{number}." + "x" * 250_000: "1"})


def of_many_containers(number: int) -> Pod:
    """A pod of thousands of containers, two of which request GPUs and CPU."""
    limits = {NAMES.gpu_mem: str(number + 2), "cpu": "1"}
    return a_pod(number, limits, limits, *[{}] * 2000)


def of_many_digits(number: int) -> Pod:
    """A pod whose amounts are beyond all sense: a webhook reads them as they were written."""
    digits = f"{number + 2}." + "0" * 100_000
    return a_pod(number, {NAMES.gpu_mem: digits, "cpu": digits, "example.com/it": digits})


def of_many_resources(number: int) -> Pod:
    """A pod that requests thousands of resources which do not exist."""
    made_up = {f"x{number}-{n}.example.com/it": "1" for n in range(5000)}
    return a_pod(number, {NAMES.gpu_mem: "1", **made_up})


@pytest.mark.parametrize(
    "comes",
    [
        lambda number: annotated(wire_names.POLICY, number),
        lambda number: annotated(wire_names.TOPOLOGY, number),
        lambda number: annotated(wire_names.ISOLATION, number),
        lambda number: annotated(wire_names.MEMORY_LIMIT, number),
        lambda number: annotated(wire_names.V2_ALLOCATION, number),
        labelled,
        of_long_resources,
        of_many_containers,
        of_many_digits,
        of_many_resources,
    ],
    ids=[
        *("policy", "topology", "isolation", "memory limit", "allocation"),
        *("label", "resource", "containers", "digits", "resources"),
    ],
)
def test_a_pod_that_was_read_leaves_nothing(comes: Callable[[int], Pod]) -> None:
    """Request and allocation are right, and nothing of the texts is kept."""

    def read(number: int) -> None:
        pod = comes(number)
        allocation = allocation_of(pod, NAMES)
        assert pod_request_of(pod, NAMES) is not None
        assert allocation is not None
        assert allocation.pending > 0

    assert kept_bytes(read) < MOST_BYTES


@pytest.mark.parametrize("annotation", [wire_names.INVENTORY, wire_names.NODE_TOPOLOGY])
def test_links_of_a_node_that_is_gone_leave_nothing(annotation: str) -> None:
    """A node writes its own annotations, and may change them as often as it likes."""
    book = Ledger(NAMES)

    def comes_and_goes(number: int) -> None:
        pairs = [(a, b) for a in range(64) for b in range(a + 1, 64)]
        links = {f"{a}-{b}": (f"NV{number + 2}", "SYS") for a, b in pairs}
        gpus = tuple(Gpu(GpuIndex(index), GpuUuid(""), 1) for index in range(64))
        inventory = Inventory(gpus=gpus, links=links)
        node = share_node("n", inventory, whole=True)
        if annotation == wire_names.NODE_TOPOLOGY:
            texts = {annotation: encode_annotation(matrix_of(inventory))}
            capacity = node.capacity | {NAMES.gpu_count: "64"}
            node = msgspec.structs.replace(node, annotations=texts, capacity=capacity)
        book.node_changed(node)
        assert len(book.nodes()[node.name].shape.matrix.links) == len(pairs)
        book.node_gone(node.name)

    assert kept_bytes(comes_and_goes) < MOST_BYTES


@pytest.mark.parametrize("end", ["Failed", "deleted"])
def test_resources_that_no_pod_requests_any_more_leave_nothing(end: str) -> None:
    """A tenant names a node in its pod, and kubelet rejects the pod for its made-up resources."""
    found = CandidateNodes(NAMES)
    found.pod_changed(a_pod(PODS, {"cpu": "1"}))

    def comes_and_goes(number: int) -> None:
        pod = of_many_resources(number)
        found.pod_changed(pod)
        if end == "Failed":
            found.pod_changed(msgspec.structs.replace(pod, phase=end))
        else:
            found.pod_gone(pod.uid)

    assert kept_bytes(comes_and_goes) < MOST_BYTES


def test_a_name_of_a_node_that_no_pod_names_any_more_leaves_nothing() -> None:
    """Nodes come and go for years, and a tenant names nodes that never existed."""
    found = CandidateNodes(NAMES)

    def comes_and_goes(number: int) -> None:
        for each in range(100):
            pod = a_pod(number, {"cpu": "1"})
            found.pod_changed(msgspec.structs.replace(pod, node=f"{number}-{each}-" + "n" * 300))
            found.pod_gone(pod.uid)

    assert kept_bytes(comes_and_goes) < MOST_BYTES


def test_claims_on_nodes_that_are_gone_leave_nothing() -> None:
    """Nodes come and go for years, each with claims."""
    accounts = ClaimAccounts(Ledger(NAMES))

    def comes_and_goes(number: int) -> None:
        for each in range(100):
            pool = f"{number}-{each}-" + "n" * 300
            result = {"driver": wire_names.CLAIM_DRIVER, "pool": pool, "device": "gpu-0"}
            status = {"allocation": {"devices": {"results": [result]}}}
            item = {"metadata": {"name": "c", "uid": f"c{number}"}, "status": status}
            claim = decode_claim(msgspec.json.encode(item))
            accounts.claim_changed(claim)
            accounts.claim_gone(claim.uid)

    assert kept_bytes(comes_and_goes) < MOST_BYTES


def claim_pods() -> PendingClaimPods:
    """Pending pods in a cluster with one template and one class."""
    exactly = {"deviceClassName": "gpushare"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    template = decode_claim_template(
        msgspec.json.encode({"metadata": {"name": "t"}, "spec": {"spec": spec}})
    )
    selector = {"cel": {"expression": f"device.driver == '{wire_names.CLAIM_DRIVER}'"}}
    of_ours = {"metadata": {"name": "gpushare"}, "spec": {"selectors": [selector]}}
    device_class = decode_device_class(msgspec.json.encode(of_ours))
    return PendingClaimPods(
        {("tenant", "t"): template}, {}, {"gpushare": device_class}, schedulers=frozenset({""})
    )


def with_claim(number: int, labels: int) -> Pod:
    """A pending pod with a claim, which requires so many labels of its node."""
    item = {
        "metadata": {"name": "p", "namespace": "tenant", "uid": f"u{number}"},
        "spec": {
            "nodeSelector": {f"k{number}-{n}": "v" * 60 for n in range(labels)},
            "resourceClaims": [{"resourceClaimTemplateName": "t"}],
        },
    }
    return decode_pod(msgspec.json.encode(item))


def test_a_pod_with_claims_that_is_gone_leaves_nothing() -> None:
    """Equal pods are of one kind, which ends with the last of them."""
    pods = claim_pods()

    def comes_and_goes(number: int) -> None:
        pod = with_claim(number, 900)
        assert pods.put(pod)
        assert pods.kind(pod) is not None
        assert pods.drop(pod.uid)
        assert pods.kind(pod) is None

    assert kept_bytes(comes_and_goes) < MOST_BYTES


def test_a_pod_with_claims_that_changes_is_of_its_last_kind_alone() -> None:
    """A tenant may add tolerations to a pending pod as often as it likes."""
    pods = claim_pods()

    def changes(number: int) -> None:
        pod = msgspec.structs.replace(with_claim(number, 300), uid="same")
        assert pods.put(pod)
        assert pods.kind(pod) is not None

    assert kept_bytes(changes) < MOST_BYTES


def test_equal_pods_with_claims_are_of_one_kind_until_the_last_is_gone() -> None:
    """Pods that come later are of the kind of those that still wait."""
    pods = claim_pods()
    first, second, third = (
        msgspec.structs.replace(with_claim(1, 2), uid=uid) for uid in ("a", "b", "c")
    )
    for pod in (first, second, third):
        assert pods.put(pod)
    kind = pods.kind(first)
    assert kind is not None
    assert pods.kind(second) is kind
    pods.drop(first.uid)
    assert pods.kind(third) is kind
    pods.put(msgspec.structs.replace(with_claim(2, 2), uid=second.uid))
    changed = pods.get(second.uid)
    assert changed is not None
    assert pods.kind(changed) not in {None, kind}
    assert pods.kind(third) is kind


def test_a_long_selector_of_a_claim_leaves_nothing() -> None:
    """Each of its terms takes more memory than its text."""
    device = SliceDevice(name="gpu-0")

    def read(number: int) -> None:
        terms = [f"device.attributes['a.b'].c{number}x{n} == 'd'" for n in range(100)]
        select(device, [" && ".join(terms)])

    assert kept_bytes(read) < MOST_BYTES / 3


def test_the_name_of_a_scheduler_that_no_pod_names_any_more_leaves_nothing() -> None:
    """The API server takes names of schedulers that do not exist, of any length."""
    pods = PendingPods()

    def comes_and_goes(number: int) -> None:
        name = f"{number}-" + "x" * 250_000
        pod = msgspec.structs.replace(a_pod(number), node="", scheduler_name=name)
        pods.put(UnscheduledPod(pod, None))
        assert pods.queued([name]) == 1
        pods.gone(pod)
        assert pods.queued([name]) == 0

    assert kept_bytes(comes_and_goes) < MOST_BYTES


def test_the_mix_keeps_no_large_selector_of_a_pod_that_is_gone() -> None:
    """The pods of the last days count for the mix; one with a large selector is for any node."""
    history = PodHistory()

    def comes(number: int) -> None:
        pod = with_claim(number, 900)
        request = pod_request_of(a_pod(number, {NAMES.gpu_mem: "1"}), NAMES)
        assert request is not None
        history.note(pod.uid, arrival_of(pod.namespace, request, pod.constraints, number + 2.0))

    assert kept_bytes(comes) < MOST_BYTES
    assert len(history) == PODS + 1
