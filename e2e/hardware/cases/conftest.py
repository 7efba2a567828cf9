"""The GPU, the nodes without Kubernetes, and the reasons why there are none here."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardware import blast, presence
from hardware.barenode import BareNode
from hardware.clients import Client
from hardware.compute import ComputeRequest, settle
from hardware.grants import PublishedGpu
from hardware.nvidiasmi import SmiGpu
from hardware.presence import NoGpuError


@pytest.fixture(scope="session")
def smi_gpu() -> SmiGpu:
    """The GPU that the suite may use, as nvidia-smi lists it."""
    try:
        return presence.usable_gpu()
    except NoGpuError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def slicing(smi_gpu: SmiGpu) -> Iterator[BareNode]:
    """A node whose GPUs slice time between processes, as without any MPS."""
    assert smi_gpu.compute_mode == "Default"
    with short_folder() as root, BareNode(root, mps=False) as node:
        yield node


@pytest.fixture(scope="session")
def mps(smi_gpu: SmiGpu) -> Iterator[BareNode]:
    """A node whose plugin runs an MPS daemon for every GPU."""
    try:
        with Client.local({"CUDA_VISIBLE_DEVICES": smi_gpu.uuid}) as probe:
            presence.demand_mps(probe.gpu["capability"])
    except NoGpuError as reason:
        pytest.skip(str(reason))
    with short_folder() as root, BareNode(root, mps=True) as node:
        node.wait_for_mps(smi_gpu.uuid)
        (gpu,) = [each for each in node.gpus() if each.uuid == smi_gpu.uuid]
        blast.let_in(node, gpu)
        yield node


@contextmanager
def short_folder() -> Iterator[Path]:
    """Sockets of MPS lie four folders deeper, and a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="g-", dir="/tmp") as root:
        yield Path(root)


@pytest.fixture(scope="session")
def gpu(smi_gpu: SmiGpu, slicing: BareNode) -> PublishedGpu:
    """The same GPU as the plugin publishes it."""
    return next(each for each in slicing.gpus() if each.uuid == smi_gpu.uuid)


@pytest.fixture(scope="session")
def size(slicing: BareNode, gpu: PublishedGpu) -> ComputeRequest:
    """A request that takes some two milliseconds of one client alone on this GPU."""
    return settle(slicing, gpu)
