"""Shares as fractions of a GPU: the promise, the original's figures, and what is refused."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from servingrule import CONTEXT_MIB, NoFraction, Share, fraction, quotient, share_in

from gpucore.model import Gpu, GpuAmounts, Inventory
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy, grant
from gpucore.units import GIB, MIB, GpuIndex, GpuUuid, MemoryUnit
from gpucore.wire.names import ENV_MEM_FRACTION

UNITS = st.sampled_from([GIB, MIB, MemoryUnit(256), MemoryUnit(2048)])


@st.composite
def shares(draw: st.DrawFn) -> Share:
    """Any share of a GPU of up to 192 GiB."""
    unit = draw(UNITS)
    gpu = draw(st.integers(1, 192 * 1024 // unit.mib))
    return Share(draw(st.integers(1, gpu)), gpu, unit)


@pytest.mark.slow
@given(
    share=shares(),
    context_mib=st.integers(0, 2048),
    processes=st.integers(1, 8),
    remainder=st.fractions(0, 1).filter(lambda part: part < 1),
)
def test_processes_never_pass_their_share(
    share: Share, context_mib: int, processes: int, remainder: Fraction
) -> None:
    """Fraction of the real GPU and head-room, for all processes, are at most the share."""
    found = fraction(share, context_mib=context_mib, processes=processes)
    if isinstance(found, NoFraction):
        assert share.mib // processes <= context_mib
        return
    real = (share.gpu + remainder) * share.unit.mib
    floor = Fraction("0.000001")
    taken = processes * (Fraction(found) * real + context_mib)
    assert 0 < Fraction(found) <= 1
    assert taken <= share.mib or Fraction(found) == floor


@given(
    total=st.integers(1024, 192 * 1024),
    unit=UNITS,
    data=st.data(),
    context_mib=st.integers(0, 1024),
)
def test_processes_never_pass_their_share_where_the_operator_keeps_memory(
    total: int, unit: MemoryUnit, data: st.DataObject, context_mib: int
) -> None:
    """Programs see that memory too, so that a fraction of the GPU is more than one of its units."""
    kept = data.draw(st.integers(0, total))
    gpu = (total - kept) // unit.mib
    assume(gpu)
    units = data.draw(st.integers(1, gpu))
    zero = GpuIndex(0)
    one = Gpu(zero, GpuUuid("GPU-0"), gpu, memory_mib=total, reserved_mib=kept)
    policy = GrantPolicy(reserve_mib=kept)
    envs = grant(Resource.MEM, {zero: units}, Inventory((one,), unit), policy).envs
    share = share_in(envs)
    assert isinstance(share, Share)
    found = fraction(share, context_mib=context_mib)
    if isinstance(found, str) and found != "0.000001":
        assert Fraction(found) * total + context_mib <= share.mib


@given(share=shares())
def test_what_is_lost_is_less_than_a_unit_and_the_rounding(share: Share) -> None:
    """Without head-room the fraction gives all but the GPU's possible remainder."""
    found = fraction(share, context_mib=0)
    assert isinstance(found, str)
    exact = Fraction(share.units, share.gpu + 1)
    assert Fraction(found) <= max(exact, Fraction("0.000001"))
    assert exact - Fraction(found) < Fraction("0.000001")


@pytest.mark.parametrize(
    ("units", "gpu", "text"),
    [
        (3, 15, "0.20"),
        (3, 16, "0.19"),
        (4, 11, "0.36"),
        (1, 15, "0.07"),
        (5, 15, "0.33"),
        (15, 15, "1.00"),
    ],
)
def test_the_quotient_is_the_originals(units: int, gpu: int, text: str) -> None:
    """Arena's chart prints these figures, and so does the rule that is named after it."""
    assert quotient(Share(units, gpu, GIB)) == text


@given(share=shares())
def test_no_quotient_is_zero(share: Share) -> None:
    """A share too small for two places has six, since 0 would mean no limit."""
    assert Fraction(quotient(share)) > 0


def test_a_share_of_a_v100_with_the_default_head_room() -> None:
    """The share on which the original used 3750 MiB of its 3072 stays within it now."""
    found = fraction(Share(3, 15, GIB))
    assert found == "0.150878"
    assert float(found) * 16130 + 527 < 3072


def test_a_share_without_room_is_refused_in_a_sentence() -> None:
    """Half a GiB holds no CUDA context; the reason names both figures."""
    found = fraction(Share(512, 15109, MIB))
    assert found == NoFraction(
        "a share of 512 MiB is too small for a model: each of 1 processes needs "
        f"{CONTEXT_MIB} MiB for its CUDA context"
    )


@given(unit=UNITS, gpu=st.integers(1, 200), data=st.data(), number=st.integers(1, 4))
def test_the_plugins_environment_is_read(
    unit: MemoryUnit, gpu: int, data: st.DataObject, number: int
) -> None:
    """What the plugin of this project grants is the share that is read from it."""
    units = data.draw(st.integers(1, gpu))
    gpus = tuple(
        Gpu(
            index=GpuIndex(index),
            minor=index,
            uuid=GpuUuid(f"GPU-{index}"),
            model="T4",
            memory_mib=gpu * unit.mib,
            units=gpu,
        )
        for index in range(number)
    )
    held: GpuAmounts = {GpuIndex(index): units for index in range(number)}
    inventory = Inventory(unit=unit, gpus=gpus)
    envs = grant(Resource.MEM, held, inventory, GrantPolicy()).envs
    parts = int(envs[ENV_MEM_FRACTION].replace(".", ""))
    assert share_in(envs) == Share(units, gpu, unit, parts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ALIYUN_COM_GPU_MEM_CONTAINER": ""}, "no device plugin has allocated a share"),
        ({"ALIYUN_COM_GPU_MEM_DEV": "0"}, "no device plugin has allocated a share"),
        ({"ALIYUN_COM_GPU_MEM_DEV": "1e3"}, "no device plugin has allocated a share"),
        ({"ALIYUN_COM_GPU_MEM_IDX": "-1"}, "the device plugin allocated no GPU"),
        ({"ALIYUN_COM_GPU_MEM_CONTAINER": "16"}, "cannot be on 1 GPUs of 15 units"),
        ({"ALIYUN_COM_GPU_MEM_IDX": "0,1,2,3"}, "cannot be on 4 GPUs"),
        ({"GPUSHARE_MEM_LIMIT_MIB": "3 GiB"}, "not an amount in MiB"),
        ({"GPUSHARE_MEM_LIMIT_MIB": "2"}, "less than 1 MiB a unit"),
    ],
)
def test_an_impossible_environment_is_refused(change: dict[str, str], words: str) -> None:
    """A failure value of a plugin, or none at all, is reported and never taken for a share."""
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_MEM_DEV": "15"} | change
    found = share_in(env)
    assert isinstance(found, NoFraction)
    assert words in found.reason


def test_an_original_plugin_is_taken_to_count_gib() -> None:
    """Without a limit in MiB a unit is what the original's default was."""
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_MEM_DEV": "15"}
    assert share_in(env) == Share(3, 15, GIB)
