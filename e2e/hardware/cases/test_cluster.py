"""Shares in a cluster with real GPU nodes: run with GPU_KUBECONFIG=<file>.

GPU_IMAGE names an image with Python where the default cannot be pulled, GPU_RUNTIME_CLASS a
RuntimeClass where the default runtime brings no driver. What needs the host's processes or daemons
of its own runs on a machine without Kubernetes only.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuprobe.names import OUT_OF_MEMORY
from hardware import memory
from hardware.compute import whole
from hardware.podsite import PodSite
from hardware.presence import NoGpuError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1200)]

IMAGE = "python:3.11-slim"


@pytest.fixture(scope="module")
def site() -> Iterator[PodSite]:
    """A node of the cluster that GPU_KUBECONFIG leads to."""
    kubeconfig = os.environ.get("GPU_KUBECONFIG")
    if not kubeconfig:
        pytest.skip("GPU_KUBECONFIG names no cluster with GPU nodes")
    with reasons():
        image, runtime = os.environ.get("GPU_IMAGE", IMAGE), os.environ.get("GPU_RUNTIME_CLASS", "")
        found = PodSite(Path(kubeconfig), image, runtime_class=runtime)
    with found:
        yield found


@contextmanager
def reasons() -> Iterator[None]:
    """What this cluster cannot carry is skipped with its sentence."""
    try:
        yield
    except NoGpuError as reason:
        pytest.skip(str(reason))


def test_a_pod_has_the_gpu_of_its_annotation(site: PodSite) -> None:
    """CUDA in the pod sees one GPU, and its uuid is that of the GPU the scheduler wrote down."""
    with reasons(), site.client(whole(site), gpu=site.gpu.index) as client:
        assert client.gpu["uuid"] == site.gpu.uuid
        assert client.gpu["gpus_seen"] == 1


def test_pods_with_unequal_shares_end_where_they_were_granted(site: PodSite) -> None:
    """Behind MPS two pods on one GPU fill up to their limits and leave each other alone."""
    if not site.mps:
        pytest.skip(f"GPU {site.gpu.index} of {site.node} is not behind MPS: limits are advice")
    with reasons():
        found = memory.limits(site, site.gpu)
    for share in (found["small"], found["large"]):
        assert share["refusal"] == OUT_OF_MEMORY
        assert share["granted_mib"] // 4 <= share["reached_mib"] <= share["granted_mib"]
        assert share["neighbour_intact"]
