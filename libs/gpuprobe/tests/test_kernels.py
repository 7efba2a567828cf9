"""The PTX text: what a launch is worth, and that NVIDIA's assembler takes it where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprobe import kernels

TARGETS = ("sm_75", "sm_80", "sm_90")
KERNELS = {"burn": kernels.burn, "copy": kernels.copy}


def test_burn_does_the_operations_it_is_credited_with() -> None:
    """The loop body has as many multiply-adds as a round is counted for, two operations each."""
    body = kernels.burn().split("again:")[1].split("bra again")[0]
    assert kernels.operations(blocks=1, rounds=1) == kernels.THREADS * 2 * body.count("fma.rn.f32")


def test_chains_start_apart() -> None:
    """No two chains of ``burn`` start alike: the assembler would compute equal ones once."""
    starts = re.findall(r"add\.f32 %chain\d, %seed, (\w+);", kernels.burn())
    assert len(set(starts)) == kernels.ACCUMULATORS


def test_copy_moves_a_vector_both_ways() -> None:
    """Every 16-byte vector is read once and written once."""
    assert kernels.bytes_moved(vectors=1024) == 2 * 16 * 1024
    assert kernels.copy().count("ld.global.v4.f32") == kernels.copy().count("st.global.v4.f32") == 1


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_assemble(name: str, tmp_path: Path) -> None:
    """The assembler takes each kernel for GPUs of three generations, spilling no register."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas of the CUDA toolkit is not on PATH; the driver compiles the text itself")
    source = tmp_path / f"{name}.ptx"
    source.write_text(KERNELS[name]())
    for target in TARGETS:
        argv = [ptxas, "-v", f"-arch={target}", str(source), "-o", str(tmp_path / "out")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert " 0 bytes spill stores" in done.stderr
