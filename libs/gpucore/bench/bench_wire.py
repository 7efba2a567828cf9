"""How long reading and writing takes, and a restart of the largest cluster (``make bench-core``).

Bars: 5,000 nodes and 50,000 pods from JSON bytes under 5 s and 600 MiB peak.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from fleet import NODES, PODS, node_object, node_pages, pod_object, pod_pages, read
from pytest_benchmark.fixture import BenchmarkFixture

from gpucore.model import Placement
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.inventories import decode_inventory, encode_inventory, inventory_of
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import decode_pod
from gpucore.wire.whole_requests import pod_request_of

REBUILD_SECONDS, REBUILD_MIB = 5.0, 600


def test_decode_pod(benchmark: BenchmarkFixture) -> None:
    """One pod object to its narrow value."""
    benchmark(decode_pod, msgspec.json.encode(pod_object(1, random.Random(1))))


def test_decode_node(benchmark: BenchmarkFixture) -> None:
    """One node object to its narrow value."""
    benchmark(decode_node, msgspec.json.encode(node_object(1)))


def test_read_claim(benchmark: BenchmarkFixture) -> None:
    """A pod's annotations to its allocation."""
    pod = decode_pod(msgspec.json.encode(pod_object(1, random.Random(1))))
    benchmark(allocation_of, pod, DEFAULT_NAMES)


def test_write_annotations(benchmark: BenchmarkFixture) -> None:
    """A placement to the annotations of its bind."""
    pod = decode_pod(msgspec.json.encode(pod_object(1, random.Random(1))))
    pod_request = pod_request_of(pod, DEFAULT_NAMES)
    inventory = inventory_of(decode_node(msgspec.json.encode(node_object(1))), DEFAULT_NAMES)
    assert pod_request is not None
    assert inventory is not None
    units = {GpuIndex(1): pod_request.mem}
    place = Placement(NodeName("n"), units, {}, {0: units})
    benchmark(
        lambda: annotations_of(
            place, pod_request, DEFAULT_NAMES, inventory=inventory, assume_time=1
        )
    )


def test_inventory_round_trip(benchmark: BenchmarkFixture) -> None:
    """The annotation of a node with eight GPUs, written and read."""
    inventory = inventory_of(decode_node(msgspec.json.encode(node_object(1))), DEFAULT_NAMES)
    assert inventory is not None
    benchmark(lambda: decode_inventory(encode_inventory(inventory)))


def test_rebuild(benchmark: BenchmarkFixture) -> None:
    """All nodes and pods from bytes to books; the bar is on CPU time, which neighbours leave be."""
    nodes, pods = node_pages(), list(pod_pages())
    seconds: list[float] = []

    def rebuild() -> tuple[int, int]:
        started = time.process_time()
        book = read(nodes, pods)
        seconds.append(time.process_time() - started)
        return len(book.nodes()), len(book.allocations())

    assert benchmark.pedantic(rebuild, rounds=3) == (NODES, PODS)
    benchmark.extra_info["cpu_seconds"] = min(seconds)
    assert min(seconds) < REBUILD_SECONDS


def test_rebuild_peak_memory(benchmark: BenchmarkFixture) -> None:
    """The same in a process of its own, page by page as from a socket: its peak in MiB."""
    script = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from fleet import node_pages, pod_pages, read\n"
        "book = read(node_pages(), pod_pages())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    run = benchmark.pedantic(
        subprocess.run, (command,), {"check": True, "capture_output": True, "text": True}, rounds=1
    )
    benchmark.extra_info["peak_mib"] = int(run.stdout)
    assert int(run.stdout) < REBUILD_MIB
