"""NVIDIA's own programs run on the library: what they resolve is there, MIG's layers included."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mocknvml import build

PLUGIN = (
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetUUID",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlDeviceRegisterEvents",
    "nvmlErrorString",
    "nvmlEventSetCreate",
    "nvmlEventSetWait_v2",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceGetInfo",
    "nvmlInitWithFlags",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
)
"""Resolved by NVIDIA's device plugin 0.20.0 and its gpu-feature-discovery (``LD_DEBUG=bindings``)
on the shipped machines, with and without MIG."""

EXPORTER = (
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetUUID",
    "nvmlErrorString",
    "nvmlInitWithFlags",
    "nvmlInit_v2",
    "nvmlShutdown",
)
"""Called by dcgm-exporter (source of 2026-05-12) through go-nvml. Its DCGM library, which loads
NVML itself, is not judged here."""

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 0, 2, 3, 6


class Layout(ctypes.Structure):
    """A structure whose fields a test can compare at once."""

    def reported(self) -> dict[str, int]:
        """Value of each field."""
        return {name: getattr(self, name) for name, *_ in self._fields_}


def numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_uint) for name in names]


class GpuInstanceProfile(Layout):
    """nvmlGpuInstanceProfileInfo_t."""

    _fields_ = (
        *numbers("id", "p2p", "slices", "instances", "multiprocessors"),
        *numbers("copy", "decoder", "encoder", "jpeg", "ofa"),
        ("memory_mib", ctypes.c_ulonglong),
    )


class GpuInstance(Layout):
    """nvmlGpuInstanceInfo_t."""

    _fields_ = (("device", ctypes.c_void_p), *numbers("id", "profile", "start", "size"))


class ComputeInstanceProfile(Layout):
    """nvmlComputeInstanceProfileInfo_t."""

    _fields_ = (
        *numbers("id", "slices", "instances", "multiprocessors"),
        *numbers("copy", "decoder", "encoder", "jpeg", "ofa"),
    )


class ComputeInstance(Layout):
    """nvmlComputeInstanceInfo_t of version 2."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("gpu_instance", ctypes.c_void_p),
        *numbers("id", "profile", "start", "size"),
    )


@pytest.fixture
def mock(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The library in this process, initialized, on two A100 of which one is cut up."""
    monkeypatch.setenv("GPUSHARE_MOCK_NVML_MACHINE", str(build.machine("a100-mig-2x40")))
    monkeypatch.setenv("GPUSHARE_MOCK_NVML_STATE", str(tmp_path / "state"))
    found = ctypes.CDLL(str(library / build.LIBRARY))
    assert found.nvmlInit_v2() == SUCCESS
    yield found
    assert found.nvmlShutdown() == SUCCESS


def gpu(mock: ctypes.CDLL, index: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    assert mock.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == SUCCESS
    return handle


def gpu_instance(mock: ctypes.CDLL, number: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    call = mock.nvmlDeviceGetGpuInstanceById
    assert call(gpu(mock, 0), number, ctypes.byref(handle)) == SUCCESS
    return handle


@pytest.mark.parametrize("symbol", sorted({*PLUGIN, *EXPORTER}))
def test_nvidias_programs_find_what_they_resolve(library: Path, symbol: str) -> None:
    """go-nvml ends the program at its first call of a function that the library lacks."""
    assert hasattr(ctypes.CDLL(str(library / build.LIBRARY)), symbol)


def test_profiles_of_gpu_instances_are_those_of_the_machines_devices(mock: ctypes.CDLL) -> None:
    """Profile numbers 0, 1 and 2 have one, two and three slices; a GPU that is whole has none."""
    call = mock.nvmlDeviceGetGpuInstanceProfileInfo
    found = {}
    for profile in range(18):
        info = GpuInstanceProfile()
        answer = call(gpu(mock, 0), profile, ctypes.byref(info))
        assert answer in {SUCCESS, NOT_SUPPORTED}
        if answer == SUCCESS:
            found[info.id] = (info.slices, info.instances, info.multiprocessors, info.memory_mib)
    assert found == {0: (1, 1, 14, 4864), 1: (2, 1, 28, 9856), 2: (3, 1, 42, 19968)}
    assert call(gpu(mock, 1), 0, ctypes.byref(GpuInstanceProfile())) == NOT_SUPPORTED
    assert call(gpu(mock, 0), 18, ctypes.byref(GpuInstanceProfile())) == INVALID_ARGUMENT


def test_a_gpu_instance_names_its_gpu_its_profile_and_its_slices(mock: ctypes.CDLL) -> None:
    """Slices are placed in the order of the machine file."""
    info = GpuInstance()
    assert mock.nvmlGpuInstanceGetInfo(gpu_instance(mock, 3), ctypes.byref(info)) == SUCCESS
    expected = {"device": gpu(mock, 0).value, "id": 3, "profile": 1, "start": 3, "size": 2}
    assert info.reported() == expected
    missing = mock.nvmlDeviceGetGpuInstanceById(gpu(mock, 0), 7, ctypes.byref(ctypes.c_void_p()))
    assert missing == NOT_FOUND


def test_a_compute_instance_is_found_in_its_gpu_instance(mock: ctypes.CDLL) -> None:
    """Its profile is the one that the GPU instance reports."""
    instance, handle = gpu_instance(mock, 2), ctypes.c_void_p()
    find = mock.nvmlGpuInstanceGetComputeInstanceById
    assert find(instance, 0, ctypes.byref(handle)) == SUCCESS
    info, profile = ComputeInstance(), ComputeInstanceProfile()
    assert mock.nvmlComputeInstanceGetInfo_v2(handle, ctypes.byref(info)) == SUCCESS
    assert (info.device, info.gpu_instance) == (gpu(mock, 0).value, instance.value)
    assert (info.id, info.profile, info.size) == (0, 2, 3)
    tell = mock.nvmlGpuInstanceGetComputeInstanceProfileInfo
    assert tell(instance, info.profile, 0, ctypes.byref(profile)) == SUCCESS
    assert (profile.slices, profile.instances, profile.multiprocessors) == (3, 1, 42)
    assert tell(instance, 0, 0, ctypes.byref(profile)) == NOT_SUPPORTED
    assert find(instance, 1, ctypes.byref(handle)) == NOT_FOUND


def test_handles_of_other_kinds_are_refused(mock: ctypes.CDLL) -> None:
    """The handle of a GPU is none of an instance, and that of an instance none of a device."""
    instance = gpu_instance(mock, 2)
    assert (
        mock.nvmlGpuInstanceGetInfo(gpu(mock, 0), ctypes.byref(GpuInstance())) == INVALID_ARGUMENT
    )
    assert mock.nvmlComputeInstanceGetInfo_v2(instance, ctypes.byref(ComputeInstance())) == (
        INVALID_ARGUMENT
    )
    index = ctypes.c_uint()
    assert mock.nvmlDeviceGetIndex(instance, ctypes.byref(index)) == INVALID_ARGUMENT
