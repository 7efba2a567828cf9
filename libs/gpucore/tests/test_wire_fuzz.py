"""Any bytes and any text give a value or WireError; corrupt text never lowers what is counted."""

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from corebuilders import NAMES, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.node_infos import capacity_of
from gpucore.model import Allocation
from gpucore.units import NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.errors import WireError
from gpucore.wire.lists import (
    decode_node_event,
    decode_nodes,
    decode_pod_event,
    decode_pods,
    event_of,
    page_of,
)
from gpucore.wire.node.inventories import decode_inventory, unhealthy_indexes
from gpucore.wire.node.spec import Node, decode_node
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import decode_pod, deletion_end
from gpucore.wire.whole_requests import pod_request_of

pytestmark = pytest.mark.slow

DECODERS: list[Callable[[bytes], object]] = [
    decode_pod,
    deletion_end,
    decode_node,
    decode_pods,
    decode_nodes,
    decode_pod_event,
    decode_node_event,
    decode_slice,
    partial(page_of, decode=decode_slice),
    partial(event_of, decode=decode_slice),
    decode_claim,
]
KEYS = [
    "metadata", "spec", "status", "items", "type", "object", "containers", "initContainers",
    "resources", "limits", "labels", "annotations", "uid", "name", "namespace", "nodeName", "phase",
    "capacity", "allocatable", "addresses", "conditions", "env", "restartPolicy", "continue",
    "resourceVersion", "deletionTimestamp", "driver", "pool", "devices", "attributes", "taints",
    "value", "requestPolicy", "validRange", "step", "allocation", "results", "consumedCapacity",
    "reservedFor", "memory", "device", "ownerReferences", NAMES.gpu_mem, NAMES.gpu, NAMES.gpu_count,
]  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["8", "32k", "ADDED", "ERROR", "BOOKMARK", "Always", "Running", "Succeeded"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
TEXT_KEYS = [
    NAMES.mem_idx, NAMES.mem_pod, NAMES.mem_assigned, NAMES.mem_assume_time, NAMES.group,
    NAMES.group_assigned, wire_names.V2_ALLOCATION, wire_names.V2_ASSIGNED,
    wire_names.V2_ASSUME_TIME, wire_names.V3_MEMORY, wire_names.V3_CORE_PERCENTAGE,
    wire_names.UNIT, wire_names.EXCLUSIVE, wire_names.POLICY, wire_names.ISOLATION,
]  # fmt: skip
MAPS = st.dictionaries(
    st.sampled_from(["0", "1", "2", "x", "-1", "00"]),
    st.dictionaries(
        st.sampled_from(["0", "1", "7", "y", "01"]),
        st.integers(-2, 9) | st.just(10**30),
        max_size=3,
    ),
    max_size=3,
).map(json.dumps)
TEXTS = st.text(max_size=12) | MAPS | st.from_regex(r"[0-9,]{0,6}", fullmatch=True)
ANNOTATIONS = st.dictionaries(st.sampled_from(TEXT_KEYS), TEXTS, max_size=8)


def answers(decode: Callable[[bytes], object], raw: bytes) -> None:
    """Decode, and take the module's own error for an answer."""
    with contextlib.suppress(WireError):
        decode(raw)


@pytest.mark.parametrize("decode", DECODERS)
@given(raw=st.binary(max_size=200))
def test_any_bytes_have_an_answer(decode: Callable[[bytes], object], raw: bytes) -> None:
    """Arbitrary bytes never raise anything but WireError."""
    answers(decode, raw)


@pytest.mark.parametrize("decode", DECODERS)
@given(value=VALUES)
@settings(max_examples=200)
def test_any_json_has_an_answer(decode: Callable[[bytes], object], value: object) -> None:
    """Objects with the right keys in wrong places never raise anything but WireError."""
    answers(decode, json.dumps(value).encode("utf-8", "surrogatepass"))


@given(text=st.text(max_size=100) | VALUES.map(json.dumps))
def test_any_inventory_text_has_an_answer(text: str) -> None:
    """An inventory is read or refused; a list of unhealthy GPUs is always read."""
    answers(
        lambda raw: decode_inventory(raw.decode("utf-8", "surrogatepass")),
        text.encode("utf-8", "surrogatepass"),
    )
    unhealthy_indexes(text)


@given(
    labels=st.dictionaries(
        st.sampled_from(
            [wire_names.LABEL_MAX_POD, wire_names.LABEL_OVERSELL, wire_names.LABEL_PLACEMENT]
        ),
        TEXTS,
    ),
    inventory=TEXTS,
)
def test_any_labels_make_a_shape(labels: dict[str, str], inventory: str) -> None:
    """Labels that say nothing sensible are faults, and limits stay sensible."""
    node = Node(NodeName("n"), labels=labels, annotations={wire_names.INVENTORY: inventory})
    shape = capacity_of(node, NAMES, frozenset())
    assert 1 <= shape.oversell <= 16
    assert 0 <= shape.max_pods < 1024


def counted(allocation: Allocation | None) -> tuple[int, int, int]:
    """Units, percent and exclusive GPUs that an allocation keeps from others."""
    assert allocation is not None
    placement = allocation.placement
    return (
        sum(placement.mem.values()) + allocation.pending,
        sum(placement.core.values()) + allocation.pending_core,
        len(placement.group) + allocation.pending_gpus,
    )


@given(
    annotations=ANNOTATIONS,
    mems=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    core=st.integers(0, 120),
    gpus=st.integers(0, 3),
    label=st.sampled_from(["1", "2", "3", "x"]),
)
@settings(max_examples=600)
def test_no_annotation_lowers_what_is_counted(
    annotations: dict[str, str], mems: list[int], core: int, gpus: int, label: str
) -> None:
    """Whatever the annotations are, at least what the specification requests is counted."""
    made = pod(
        "p", mems, core=core, gpus=gpus, node="n",
        annotations=annotations, labels={NAMES.gpu_count: label},
    )  # fmt: skip
    pod_request = pod_request_of(made, NAMES)
    allocation = allocation_of(made, NAMES)
    if pod_request is None:
        assert allocation is None
        return
    mem, percent, whole = counted(allocation)
    assert mem >= pod_request.mem == sum(mems)
    assert percent >= pod_request.core == core
    assert whole >= pod_request.gpus == gpus


@given(annotations=ANNOTATIONS, mem=st.integers(1, 9))
@settings(max_examples=300)
def test_every_gpu_of_the_best_map_is_counted(annotations: dict[str, str], mem: int) -> None:
    """An allocation that is well has exactly the amount; any other has a fault or is pending."""
    allocation = allocation_of(pod("p", mem, node="n", annotations=annotations), NAMES)
    assert allocation is not None
    if not allocation.faults and not allocation.pending:
        assert sum(allocation.placement.mem.values()) == mem
