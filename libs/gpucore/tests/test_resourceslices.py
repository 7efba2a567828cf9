"""GPUs as devices of a ResourceSlice, in the shapes that an API server accepted."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.model import Gpu, Inventory, IsolationMode
from gpucore.model.constraints import NO_EXECUTE, NO_SCHEDULE
from gpucore.units import GIB, GpuIndex, GpuUuid
from gpucore.wire.claim.devices import (
    SliceDevice,
    device_indexes,
    device_name,
    device_of,
    encode_device,
)
from gpucore.wire.claim.resource_slices import (
    MAX_DEVICES,
    MAX_TAINTED,
    ResourceSlice,
    decode_slice,
    encode_slice,
    encode_update,
    link_groups,
    with_taint_times,
)
from gpucore.wire.errors import WireError
from gpucore.wire.lists import WatchEventType, event_of, page_of
from gpucore.wire.names import CLAIM_DRIVER

T4 = Gpu(GpuIndex(0), GpuUuid("GPU-0"), 79, model="Tesla T4", isolation=IsolationMode.MPS)
TEXT = st.text(max_size=64).filter(lambda text: len(text.encode()) <= 64)


def slice_of(*devices: SliceDevice, **fields: Any) -> ResourceSlice:
    """A slice of node ``n1``."""
    return ResourceSlice("n1-gpu", CLAIM_DRIVER, "n1", "n1", devices, **fields)


@st.composite
def devices(draw: st.DrawFn) -> SliceDevice:
    """Any device that a GPU can be."""
    gpu = Gpu(
        GpuIndex(draw(st.integers(0, 200))),
        GpuUuid(draw(TEXT)),
        draw(st.integers(1, 200)),
        model=draw(st.text(max_size=99)),
        numa=draw(st.integers(-1, 7)),
        healthy=draw(st.booleans()),
        isolation=draw(st.sampled_from(IsolationMode)),
        mig=draw(st.booleans()),
        pcie_root=draw(TEXT),
    )
    return device_of(gpu, GIB, link_group=draw(TEXT), max_shares=draw(st.integers(0, 48)))


@pytest.mark.slow
@given(st.lists(devices(), max_size=8), st.integers(1, 1 << 40), st.sampled_from(["", "uid-1"]))
def test_a_slice_reads_back_as_it_was_written(
    found: list[SliceDevice], generation: int, node_uid: str
) -> None:
    """Encoding and decoding any slice changes nothing."""
    wanted = slice_of(*found, generation=generation, node_uid=node_uid)
    assert decode_slice(msgspec.json.encode(encode_slice(wanted))) == wanted


def test_a_shared_gpu_has_the_shape_that_the_scheduler_allocates() -> None:
    """Memory defaults to all of it and compute to none; both have a range and a step."""
    assert encode_device(device_of(T4, GIB)) == {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": "GPU-0"},
            "index": {"int": 0},
            "productName": {"string": "Tesla T4"},
            "isolation": {"string": "mps"},
        },
        "capacity": {
            "memory": {
                "value": "80896Mi",
                "requestPolicy": {
                    "default": "80896Mi",
                    "validRange": {"min": "1024Mi", "max": "80896Mi", "step": "1024Mi"},
                },
            },
            "compute": {
                "value": "100",
                "requestPolicy": {
                    "default": "0",
                    "validRange": {"min": "0", "max": "100", "step": "1"},
                },
            },
        },
    }


def test_the_numa_node_has_the_name_that_drivers_of_other_devices_use() -> None:
    """A GPU without a NUMA node has neither name: one value for all would align what is apart."""
    placed = device_of(msgspec.structs.replace(T4, numa=1), GIB)
    attributes = encode_device(placed)["attributes"]
    assert attributes["resource.kubernetes.io/numaNode"] == {"int": 1}
    assert attributes["numaNode"] == {"int": 1}
    without = encode_device(device_of(T4, GIB))["attributes"]
    assert not {"numaNode", "resource.kubernetes.io/numaNode"} & without.keys()


def test_a_limited_number_of_shares_is_a_capacity_of_its_own() -> None:
    """Every share consumes one, and none can consume more."""
    capacity = encode_device(device_of(T4, GIB, max_shares=48))["capacity"]
    assert capacity["shares"] == {
        "value": "48",
        "requestPolicy": {"default": "1", "validValues": ["1"]},
    }


def test_a_mig_instance_is_allocated_once() -> None:
    """The API server accepts a request policy only with several allocations."""
    found = encode_device(device_of(msgspec.structs.replace(T4, mig=True), GIB, max_shares=1))
    assert "allowMultipleAllocations" not in found
    assert found["capacity"] == {"memory": {"value": "80896Mi"}, "compute": {"value": "100"}}


def test_an_unhealthy_gpu_is_tainted_and_keeps_the_time_of_its_taint() -> None:
    """An update with other devices does not restart the time that tolerations count from."""
    ill = device_of(msgspec.structs.replace(T4, healthy=False), GIB)
    since = "2026-11-22T12:00:00Z"
    present = slice_of(msgspec.structs.replace(ill, tainted_at=since))
    first = encode_slice(slice_of(ill))["spec"]["devices"][0]["taints"]
    assert first == [{"key": f"{CLAIM_DRIVER}/unhealthy", "value": "true", "effect": "NoSchedule"}]
    again = encode_update(with_taint_times(slice_of(ill), present))
    assert again["spec"]["devices"][0]["taints"] == [first[0] | {"timeAdded": since}]
    well = with_taint_times(slice_of(device_of(T4, GIB)), present)
    assert "taints" not in encode_slice(well)["spec"]["devices"][0]


def test_a_gpu_that_is_only_paused_has_a_taint_that_evicts_no_pod() -> None:
    """Its MPS daemon accepts no new pods, and those that run continue."""
    for paused, effect in ((False, NO_EXECUTE), (True, NO_SCHEDULE)):
        gpu = msgspec.structs.replace(T4, healthy=False, paused=paused)
        assert device_of(gpu, GIB, unhealthy=NO_EXECUTE).taint == effect


def test_quantities_that_the_api_server_rewrote_are_the_same_device() -> None:
    """79Gi and 80896Mi are one amount, so nothing is written again."""
    encoded = encode_slice(slice_of(device_of(T4, GIB)))
    text = msgspec.json.encode(encoded).replace(b"80896Mi", b"79Gi").replace(b"1024Mi", b"1Gi")
    assert decode_slice(text).devices == (device_of(T4, GIB),)


def test_the_node_owns_the_slice_and_an_update_names_its_version() -> None:
    """The slice goes with its node, and a slice that changed meanwhile is not overwritten."""
    found = slice_of(node_uid="uid-1", resource_version="7", generation=3)
    assert encode_slice(found)["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": True}
    ]
    update = encode_update(found)
    assert update["metadata"] == {"resourceVersion": "7"}
    assert update["spec"]["pool"] == {"name": "n1", "generation": 3, "resourceSliceCount": 1}


@pytest.mark.parametrize(("healthy", "most"), [(True, MAX_DEVICES), (False, MAX_TAINTED)])
def test_more_gpus_than_a_slice_takes_are_refused(healthy: bool, most: int) -> None:
    """The API server takes fewer devices where one has a taint."""
    gpus = [Gpu(GpuIndex(i), GpuUuid(""), 1, healthy=healthy or i > 0) for i in range(most + 1)]
    full = [device_of(gpu, GIB) for gpu in gpus]
    encode_slice(slice_of(*full[:most]))
    with pytest.raises(WireError, match=f"{most + 1} GPUs do not fit"):
        encode_slice(slice_of(*full))


def test_a_device_keeps_its_name_when_the_driver_counts_gpus_anew() -> None:
    """What is allocated of a GPU stays on that GPU; the name does not depend on the index."""
    uuid = GpuUuid("GPU-5A3B0c1d-0000-1111-2222-333344445555")
    first, second = (Gpu(GpuIndex(index), uuid, 15) for index in (0, 3))
    assert device_name(first) == device_name(second) == "gpu-5a3b0c1d-0000-1111-2222-333344445555"
    assert device_indexes([second, T4]) == {device_name(second): 3, "gpu-0": 0}


@given(st.text(max_size=99), st.integers(0, 1023))
def test_every_device_name_is_a_dns_label(uuid: str, index: int) -> None:
    """The API server accepts no other name; a GPU without a UUID is named by its index."""
    name = device_name(Gpu(GpuIndex(index), GpuUuid(uuid), 15))
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)


def test_gpus_connected_by_nvlink_are_one_group() -> None:
    """Also where another GPU stands between them; a GPU without NVLink has no group."""
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(""), 1) for i in range(6))
    links = {"1-2": ("NV1",), "2-3": ("SYS", "NV2"), "4-5": ("NV4",), "0-1": ("PIX",)}
    groups = link_groups(Inventory(gpus, links=links))
    assert groups == {1: "nvlink-1", 2: "nvlink-1", 3: "nvlink-1", 4: "nvlink-4", 5: "nvlink-4"}


def test_lists_and_events_of_slices() -> None:
    """Items with their versions; amounts that cannot be read count as none."""
    device = b'{"name":"gpu-0","capacity":{"memory":{"value":"many"}}}'
    spec = b'"spec":{"driver":"d","devices":[' + device + b"]}"
    item = b'{"metadata":{"name":"s","resourceVersion":"5"},' + spec + b"}"
    page = page_of(b'{"metadata":{"resourceVersion":"9"},"items":[' + item + b"]}", decode_slice)
    assert [(each.name, each.devices[0].memory_mib) for each in page.items] == [("s", 0)]
    event = event_of(b'{"type":"ADDED","object":' + item + b"}", decode_slice)
    assert (event.kind, event.resource_version) == (WatchEventType.ADDED, "5")
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}'
    assert event_of(bookmark, decode_slice).resource_version == "8"


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"spec":{}}', b'{"metadata":3}'])
def test_other_bytes_are_no_slice(raw: bytes) -> None:
    """One error for all."""
    with pytest.raises(WireError):
        decode_slice(raw)
    with pytest.raises(WireError):
        page_of(raw, decode_slice)
