"""The driver's calls as they are declared here, against NVIDIA's own header where there is one."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuprobe import driver

KINDS = (
    (r".*\*", {"c_void_p", "c_char_p"}),
    (r"CUdeviceptr\b", {"c_uint64", "c_ulong"}),
    (r"size_t\b", {"c_size_t", "c_ulong"}),
    (r"unsigned int\b", {"c_uint"}),
    (r"(int|CUdevice|CUdevice_attribute)\b", {"c_int"}),
    (r"(CUcontext|CUmodule|CUfunction|CUstream)\b", {"c_void_p"}),
)
"""How a parameter's C type is spelled in ctypes; the first that matches counts."""


@pytest.fixture(scope="module")
def header() -> str:
    """The text of cuda.h, beside the compiler or where the toolkit is installed."""
    compiler = shutil.which("nvcc")
    folders = [Path("/usr/local/cuda/include"), *Path("/usr/local").glob("cuda-*/include")]
    folders += [Path(compiler).resolve().parents[1] / "include"] if compiler else []
    for folder in folders:
        if (folder / "cuda.h").exists():
            return (folder / "cuda.h").read_text()
    pytest.skip("cuda.h of the CUDA toolkit is not installed")


@pytest.mark.parametrize("name", driver.SIGNATURES)
def test_calls_are_declared_as_in_the_header(name: str, header: str) -> None:
    """Number and kinds of arguments are those of cuda.h; versioned symbols by their plain name."""
    plain = name.removesuffix("_v2")
    declared = re.search(rf"CUresult CUDAAPI {plain}\(([^)]*)\);", header)
    assert declared, f"{plain} is not in cuda.h"
    parameters = [] if declared[1].strip() == "void" else declared[1].split(",")
    ours = driver.SIGNATURES[name]
    assert len(ours) == len(parameters)
    for parameter, kind in zip(parameters, ours, strict=True):
        assert _fits(parameter.strip(), kind), f"{parameter} is declared as {kind.__name__}"


def _fits(parameter: str, kind: Any) -> bool:
    spelled = next((names for pattern, names in KINDS if re.match(pattern, parameter)), set())
    return kind.__name__ in spelled


def test_a_uuid_is_spelled_as_nvml_does() -> None:
    """Sixteen bytes are five groups of digits behind ``GPU-``."""
    raw = bytes.fromhex("84bc6439fa3f44778cd2a7a3d5d9f18f")
    assert driver.spelled(raw) == "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"
