"""A fleet to measure on: nodes, pods and their bytes as the API server would send them."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from gpucore.accounting.ledger import Ledger, rebuilt
from gpucore.model import Gpu, Inventory
from gpucore.units import GIB, GpuIndex, GpuUuid
from gpucore.wire import names as wire_names
from gpucore.wire.lists import decode_nodes, decode_pods
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.inventories import encode_inventory

NODES, GPUS, UNITS, PODS, PAGE = 5_000, 8, 80, 50_000, 500
MANAGED = [{"manager": "kubelet", "fieldsV1": {f"f:field-{i}": {} for i in range(40)}}]
"""What the API server carries along and nobody here reads."""


def _inventory(node: int) -> Inventory:
    gpus = tuple(
        Gpu(
            GpuIndex(i),
            GpuUuid(f"GPU-{node:08x}-{i:012x}"),
            UNITS,
            i,
            "H100",
            81_559,
        )
        for i in range(GPUS)
    )
    return Inventory(gpus=gpus, unit=GIB, driver="550.54.15")


def node_object(number: int) -> dict[str, Any]:
    """One node with eight GPUs."""
    names = DEFAULT_NAMES
    capacity = {
        "cpu": "128",
        "memory": "2113560000Ki",
        names.gpu_mem: str(GPUS * UNITS),
        names.gpu_count: str(GPUS),
        names.gpu: str(GPUS),
    }
    return {
        "metadata": {
            "name": f"node-{number:05}",
            "resourceVersion": str(number),
            "labels": {"gpushare": "true", "kubernetes.io/hostname": f"node-{number:05}"},
            "annotations": {wire_names.INVENTORY: encode_inventory(_inventory(number))},
            "managedFields": MANAGED,
        },
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": [f"example/image-{i}"], "sizeBytes": i} for i in range(30)],
        },
    }


def pod_object(number: int, chance: random.Random) -> dict[str, Any]:
    """One running pod with a share of one GPU."""
    names, mem, gpu = DEFAULT_NAMES, chance.choice((2, 4, 8, 16)), chance.randrange(GPUS)
    texts = {
        names.mem_idx: str(gpu),
        names.mem_dev: str(UNITS),
        names.mem_pod: str(mem),
        names.mem_assigned: "true",
        names.mem_assume_time: "1700000000000000000",
        wire_names.V2_ALLOCATION: f'{{"0":{{"{gpu}":{mem}}}}}',
        wire_names.V2_ASSIGNED: "true",
        wire_names.V2_ASSUME_TIME: "1700000000000000000",
        wire_names.UNIT: "GiB",
    }
    limits = {names.gpu_mem: str(mem), "cpu": "4", "memory": "16Gi"}
    container = {
        "name": "main",
        "image": "example/model-server:1",
        "resources": {"limits": limits, "requests": limits},
        "env": [{"name": f"VAR_{i}", "value": "x"} for i in range(10)],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    return {
        "metadata": {
            "name": f"pod-{number:06}",
            "namespace": "models",
            "uid": f"{number:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "model-server"},
            "annotations": texts,
            "managedFields": MANAGED,
        },
        "spec": {"nodeName": f"node-{number % NODES:05}", "containers": [container]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}] * 4},
    }


def _pages(items: Iterator[dict[str, Any]], count: int) -> Iterator[bytes]:
    for start in range(0, count, PAGE):
        page = [next(items) for _ in range(min(PAGE, count - start))]
        yield msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": page})


def node_pages(count: int = NODES) -> list[bytes]:
    """Pages of a list of all nodes."""
    return list(_pages((node_object(i) for i in range(count)), count))


def pod_pages(count: int = PODS) -> Iterator[bytes]:
    """Pages of a list of all pods, made one by one as they are read off a socket."""
    chance = random.Random(7)
    return _pages((pod_object(i, chance) for i in range(count)), count)


def read(nodes: list[bytes], pods: Iterator[bytes] | list[bytes]) -> Ledger:
    """The books that these pages give, page by page, as a service reads them."""
    return rebuilt(
        DEFAULT_NAMES,
        (node for page in nodes for node in decode_nodes(page).items),
        (pod for page in pods for pod in decode_pods(page).items),
    )
