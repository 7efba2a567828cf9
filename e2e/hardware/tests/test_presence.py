"""Which GPUs the suite leaves alone, and the sentences that say why."""

from dataclasses import replace
from pathlib import Path

import pytest

from hardware import nvidiasmi, presence
from hardware.nvidiasmi import SmiGpu
from hardware.presence import NoGpuError

CSV = """\
0, GPU-aaaaaaaa-0000-0000-0000-000000000000, Tesla T4, 15360, 535.161.08, Default, [N/A]
1, GPU-bbbbbbbb-0000-0000-0000-000000000000, NVIDIA A100-SXM4-40GB, 40960, 535.161.08, Default, Enabled
"""  # noqa: E501 - a line is as nvidia-smi prints it
APPS = """\
GPU-aaaaaaaa-0000-0000-0000-000000000000, 4711, 1250
GPU-aaaaaaaa-0000-0000-0000-000000000000, 4712, [N/A]
GPU-bbbbbbbb-0000-0000-0000-000000000000, 4713, 10
"""
GPU = SmiGpu(0, "GPU-a", "Tesla T4", 15360, "535.161.08", "Default", mig=False)


def test_gpus_are_read_from_csv() -> None:
    """Names with blanks are whole, and MIG is on only where the output has it."""
    first, second = nvidiasmi.parse_gpus(CSV)
    assert (first.index, first.model, first.memory_mib, first.mig) == (0, "Tesla T4", 15360, False)
    assert (second.uuid[:12], second.driver, second.mig) == ("GPU-bbbbbbbb", "535.161.08", True)


def test_memory_that_is_no_number_is_none() -> None:
    """A GPU without memory of its own, or one that nvidia-smi cannot read."""
    for word in ("[N/A]", "[Unknown Error]", "[GPU requires reset]"):
        (gpu, _) = nvidiasmi.parse_gpus(CSV.replace("15360", word))
        assert gpu.memory_mib == 0


def test_recoveries_are_those_that_a_driver_requires() -> None:
    """None, and what it does not report, is no recovery."""
    text = "GPU-a, None\nGPU-b, Drain and Reset\nGPU-c, [N/A]\n"
    assert nvidiasmi.parse_recoveries(text) == {"GPU-b": "Drain and Reset"}


def test_a_driver_without_recoveries_lists_its_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its nvidia-smi knows no such field and ends with an error."""
    program = tmp_path / nvidiasmi.COMMAND
    program.write_text(
        f'#!/bin/sh\ncase "$1" in *recovery*) exit 2;; esac\nprintf "%s" "{CSV}"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [gpu.recovery for gpu in nvidiasmi.listed()] == ["", ""]


def test_processes_are_those_of_the_gpu() -> None:
    """Memory that the driver does not tell counts as none."""
    uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    assert nvidiasmi.parse_processes(APPS, uuid) == {4711: 1250, 4712: 0}
    assert nvidiasmi.parse_processes("", uuid) == {}


def test_a_gpu_of_its_own_is_taken() -> None:
    """The first GPU without an obstacle is the one to use."""
    other = SmiGpu(1, "GPU-b", "Tesla T4", 15360, "535.161.08", "Default", mig=False)
    assert presence.chosen([GPU, other], {"GPU-a": {7: 100}}) == other


@pytest.mark.parametrize(
    ("gpu", "processes", "words"),
    [
        (SmiGpu(0, "GPU-a", "A100", 1, "535", "Default", mig=True), {}, "MIG"),
        (SmiGpu(0, "GPU-a", "T4", 1, "535", "Exclusive_Process", mig=False), {}, "compute mode"),
        (GPU, {4711: 100, 12: 5}, "in use by process 12, 4711"),
        (replace(GPU, recovery="Drain and Reset"), {}, "needs a recovery .*: Drain and Reset"),
        (replace(GPU, memory_mib=0), {}, "has no memory"),
    ],
)
def test_a_gpu_is_left_alone(gpu: SmiGpu, processes: dict[int, int], words: str) -> None:
    """What is cut, exclusive or busy is refused with its reason, and never changed."""
    with pytest.raises(NoGpuError, match=words):
        presence.chosen([gpu], {"GPU-a": processes})


def test_no_gpu_is_a_reason_too() -> None:
    """A driver without GPUs and a missing driver give different messages."""
    with pytest.raises(NoGpuError, match="lists none"):
        presence.chosen([], {})


def test_missing_nvidia_smi_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the program on PATH the reason names it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(nvidiasmi.SmiError, match="not on PATH"):
        nvidiasmi.listed()


def test_mps_needs_its_program_and_volta(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A GPU of before Volta has no limits, and no control program means no daemon."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoGpuError, match="not on PATH"):
        presence.demand_mps("7.5")
    program = tmp_path / presence.MPS_CONTROL
    program.write_text("")
    program.chmod(0o755)
    with pytest.raises(NoGpuError, match="Volta"):
        presence.demand_mps("6.1")
    presence.demand_mps("7.0")


def test_other_process_ids_are_noticed(tmp_path: Path) -> None:
    """A process namespace that is not the kernel's own is reported by its number."""
    link = tmp_path / "pid"
    link.symlink_to("pid:[4026532999]")
    assert not presence.host_processes(link)
