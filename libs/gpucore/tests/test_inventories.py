"""The GPUs of a node: our annotation, and what capacity holds without one."""

import json
import re
from typing import Any

import msgspec
import pytest
from corebuilders import NAMES, legacy_node, make_gpus, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.model import Gpu, Inventory, IsolationMode
from gpucore.units import GIB, GpuIndex, GpuUuid, MemoryUnit, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.node.inventories import (
    decode_inventory,
    encode_inventory,
    inventory_hash,
    inventory_of,
    kept_by_plugin,
    unhealthy_indexes,
    unhealthy_node,
)
from gpucore.wire.node.spec import Node

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "unit": "GiB",
    "driver": "535.1",
    "gpus": [
        {
            "index": 1,
            "minor": 3,
            "uuid": "GPU-b",
            "model": "T4",
            "units": 15,
            "memoryMiB": 16130,
            "reservedMiB": 300,
            "numa": 1,
            "healthy": False,
            "mode": "mps",
        },
        {"index": 0, "uuid": "MIG-a", "units": 4, "mode": "mig"},
    ],
    "links": {"0-1": ["PIX", "NV2"]},
    "serving": False,
}


def test_the_document_is_read() -> None:
    """Every field of version 1 arrives, GPUs in order of index."""
    assert decode_inventory(json.dumps(DOCUMENT)) == Inventory(
        gpus=(
            Gpu(GpuIndex(0), GpuUuid("MIG-a"), 4, mig=True),
            Gpu(
                GpuIndex(1),
                GpuUuid("GPU-b"),
                15,
                minor=3,
                model="T4",
                memory_mib=16130,
                reserved_mib=300,
                numa=1,
                healthy=False,
                isolation=IsolationMode.MPS,
            ),
        ),
        unit=GIB,
        links={"0-1": ("PIX", "NV2")},
        driver="535.1",
        serving=False,
    )


def test_the_document_has_the_names_of_the_contract() -> None:
    """What is written is what the contract names, so that other tools can read it."""
    written = json.loads(encode_inventory(decode_inventory(json.dumps(DOCUMENT))))
    by_index = {gpu["index"]: gpu for gpu in written["gpus"]}
    assert by_index[1] == DOCUMENT["gpus"][0]
    assert by_index[0]["mode"] == "mig"
    assert {key: written[key] for key in ("version", "unit", "driver", "links", "serving")} == {
        key: DOCUMENT[key] for key in ("version", "unit", "driver", "links", "serving")
    }


GPUS = st.builds(
    Gpu,
    index=st.integers(0, 1023).map(GpuIndex),
    uuid=st.text(max_size=8).map(GpuUuid),
    units=st.integers(0, 200_000),
    minor=st.integers(-1, 255),
    model=st.text(max_size=8),
    memory_mib=st.integers(0, 300_000),
    reserved_mib=st.integers(0, 300_000),
    numa=st.integers(-1, 8),
    healthy=st.booleans(),
    isolation=st.sampled_from(IsolationMode),
    withheld=st.integers(0, 200_000),
)


@pytest.mark.slow
@given(
    st.lists(GPUS, max_size=4, unique_by=lambda gpu: gpu.index),
    st.integers(1, 9_999_999).map(MemoryUnit),
)
def test_an_inventory_reads_back(gpus: list[Gpu], unit: MemoryUnit) -> None:
    """Encoding and decoding gives the same inventory."""
    ordered = tuple(sorted(gpus, key=lambda gpu: gpu.index))
    inventory = Inventory(gpus=ordered, unit=unit, links={"0-1": ("SYS",)}, driver="5")
    assert decode_inventory(encode_inventory(inventory)) == inventory


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2 is unknown"),
        ({"unit": "GB"}, "is not a unit of memory"),
        ({"unit": 7}, "Expected `str`"),
        ({"gpus": DOCUMENT["gpus"][:1] * 2}, "two GPUs have index 1"),
        ({"gpus": [{"index": 0, "units": -1}]}, ">= 0"),
        ({"gpus": [{"index": 1024, "units": 1}]}, "<= 1023"),
        ({"gpus": [{"index": 0, "units": 1, "mode": "cgpu"}]}, "mode 'cgpu' is unknown"),
    ],
)
def test_another_document_is_refused(change: dict[str, Any], words: str) -> None:
    """A document of another kind is refused with the reason."""
    with pytest.raises(WireError, match=words):
        decode_inventory(json.dumps(DOCUMENT | change))


def test_an_inventory_without_a_unit_is_not_written() -> None:
    """The unit is never left to be guessed."""
    with pytest.raises(WireError, match="without a unit"):
        encode_inventory(make_gpus(15, unit=None))


def test_the_annotation_wins_over_capacity() -> None:
    """With our plugin, mixed GPUs have their own sizes."""
    node = share_node("n", make_gpus(15, 79))
    inventory = inventory_of(node, NAMES)
    assert inventory is not None
    assert [gpu.units for gpu in inventory.gpus] == [15, 79]
    assert inventory.unit == GIB


@pytest.mark.parametrize("broken", ["", "{", '{"version":2}'])
def test_a_broken_annotation_falls_back_to_capacity(broken: str) -> None:
    """An annotation that cannot be read leaves total // count."""
    node = msgspec.structs.replace(
        legacy_node("n", 31, 2), annotations={wire_names.INVENTORY: broken}
    )
    inventory = inventory_of(node, NAMES)
    assert inventory is not None
    assert [(gpu.index, gpu.units) for gpu in inventory.gpus] == [(0, 15), (1, 15)]
    assert inventory.unit is None


def test_whole_gpus_of_the_original_topology_plugin() -> None:
    """A node with aliyun.com/gpu only has that many GPUs, of unknown memory."""
    inventory = inventory_of(Node(NodeName("n"), capacity={NAMES.gpu: "8"}), NAMES)
    assert inventory is not None
    assert [(gpu.index, gpu.units) for gpu in inventory.gpus] == [(i, 0) for i in range(8)]


@pytest.mark.parametrize(
    "capacity",
    [
        {},
        {"cpu": "8"},
        {NAMES.gpu_mem: "30"},
        {NAMES.gpu_mem: "30", NAMES.gpu_count: "0"},
        {NAMES.gpu_mem: "30", NAMES.gpu_count: "1024"},
        {NAMES.gpu_count: "2"},
        {NAMES.gpu: "0"},
    ],
)
def test_without_a_count_nothing_is_known(capacity: dict[str, str]) -> None:
    """A node that does not say how many GPUs it has has no inventory."""
    assert inventory_of(Node(NodeName("n"), capacity=capacity), NAMES) is None


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0,2", {0, 2}),
        ("0, 2", {0, 2}),
        ("", set()),
        ("x", set()),
        ("3,,x, 1 ", {1, 3}),
        ("-1", set()),
    ],
)
def test_the_list_of_unhealthy_gpus(text: str, indexes: set[int]) -> None:
    """Elements that are no index mark nothing, above all not GPU 0."""
    assert unhealthy_indexes(text) == indexes


@pytest.mark.parametrize(
    ("name", "node"), [("unhealthy-gpu-n1", "n1"), ("unhealthy-gpu-", None), ("other", None)]
)
def test_the_node_of_a_config_map(name: str, node: str | None) -> None:
    """The ConfigMap's name contains the node."""
    assert unhealthy_node(name) == node


def test_only_the_plugins_own_list_of_unhealthy_gpus_is_known_as_such() -> None:
    """By its label; a list that somebody wrote by hand, or with Helm, is theirs."""
    label = "app.kubernetes.io/managed-by"
    assert kept_by_plugin({label: "gpushare-device-plugin", "a": "b"})
    for labels in (None, {}, {label: "Helm"}):
        assert not kept_by_plugin(labels)


@given(st.text(), st.text())
def test_the_label_of_an_inventory_is_a_label_and_follows_the_text(one: str, other: str) -> None:
    """At most 63 of the letters and digits that Kubernetes takes, another for another text."""
    assert re.fullmatch(r"[0-9a-f]{16}", inventory_hash(one))
    assert (inventory_hash(one) == inventory_hash(other)) == (one == other)
