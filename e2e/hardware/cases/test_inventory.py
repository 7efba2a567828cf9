"""The GPUs as the plugin publishes them are those that the driver has."""

import pytest

from hardware import nvidiasmi
from hardware.barenode import BareNode
from hardware.compute import whole
from hardware.grants import MEM, PublishedGpu

pytestmark = pytest.mark.gpu


def test_the_inventory_agrees_with_nvidia_smi(slicing: BareNode) -> None:
    """Every GPU of nvidia-smi is published with its index, uuid, model and memory, once.

    GPUs need not be whole MiB, and who rounds them how is nobody's promise.
    """
    listed = {each.uuid: each for each in nvidiasmi.listed() if not each.mig}
    published = [each for each in slicing.gpus() if each.mode != "mig"]
    assert sorted(each.uuid for each in published) == sorted(listed)
    for each in published:
        reported = listed[each.uuid]
        assert (each.index, each.model) == (reported.index, reported.model)
        assert abs(each.memory_mib - reported.memory_mib) <= 1


def test_kubelet_is_offered_every_unit_of_a_gpu(slicing: BareNode, gpu: PublishedGpu) -> None:
    """The devices of a GPU are the whole units of its memory that the driver does not reserve."""
    ids = [one for one in slicing.kubelet.healthy(MEM) if one.startswith(gpu.uuid)]
    assert len(ids) == gpu.units
    assert gpu.units == (gpu.memory_mib - gpu.reserved_mib) // slicing.unit_mib


def test_a_process_gets_the_gpu_of_its_grant(slicing: BareNode, gpu: PublishedGpu) -> None:
    """CUDA in a process with the granted environment sees one GPU: the one kubelet gave ids of."""
    with slicing.client(whole(slicing), gpu=gpu.index) as client:
        assert client.gpu["uuid"] == gpu.uuid
        assert client.gpu["gpus_seen"] == 1
