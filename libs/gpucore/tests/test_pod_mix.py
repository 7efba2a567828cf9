"""The mix of pods as a node sees it by its model, CPU and memory."""

import pytest

from gpucore.workload.kinds import TYPICAL
from gpucore.workload.pod_mix import (
    GUESS,
    MOST_KINDS,
    SCARCE,
    VIEWS,
    HostRoom,
    PodKind,
    PodMix,
    usual_mix,
)

HALF = PodKind(mem=8, cpu_milli=4000, memory_mib=1024)
WHOLE = PodKind(cpu_milli=8000)


def lost(
    mix: PodMix, *free: int, cpu: int = 10**9, memory: int = 10**9, model: str = "T4"
) -> float:
    """GPUs that the mix cannot use of a node with GPUs of 16 units."""
    return mix.view(model, 16, cpu, memory).fragmentation(free)


@pytest.mark.parametrize(
    ("kind", "units", "milli"),
    [
        (PodKind(mem=8), 16, 500),
        (PodKind(mem=8), 80, 100),
        (PodKind(mem=1), 3, 334),
        (PodKind(mem=8, core=60), 16, 600),
        (PodKind(core=30), 16, 300),
        (PodKind(mem=20), 16, 1250),
        (PodKind(gpus=2), 16, 1000),
        (PodKind(mem=8), 0, 1000),
    ],
)
def test_the_size_of_a_share_follows_from_the_gpu(kind: PodKind, units: int, milli: int) -> None:
    """The same units are more of a small GPU; memory or compute counts, whichever is more."""
    assert kind.milli(units) == milli


def test_a_node_without_cpu_memory_or_the_model_loses_everything() -> None:
    """Free GPUs that no usual pod can run on are fragments."""
    mix = PodMix({HALF: 1.0})
    assert lost(mix, 1000, cpu=8000) == 0.0
    assert lost(mix, 1000, cpu=3999) == 1.0
    assert lost(mix, 1000, memory=1023) == 1.0
    models = PodMix({HALF: 1.0, PodKind(mem=8, models=("A10",)): 3.0})
    assert lost(models, 1000, model="A10") == 0.0
    assert lost(models, 1000, model="T4") == pytest.approx(0.75)


def test_gpus_beyond_what_the_cpu_allows_are_scarce() -> None:
    """With CPU for one half, three halves more are free than this kind could use."""
    mix = PodMix({HALF: 1.0})
    assert lost(mix, 1000, 1000, cpu=4000) == pytest.approx(SCARCE * 1.5)
    assert lost(mix, 1000, 1000, cpu=16000) == 0.0
    both = PodMix({HALF: 1.0, WHOLE: 1.0})
    assert lost(both, 1000, 1000, cpu=8000) == pytest.approx(SCARCE * (0.5 * 1.0 + 0.5 * 1.0))


def test_views_follow_the_room_of_the_host() -> None:
    """A pod that takes CPU leaves another view; without a mix there is the guess."""
    room = HostRoom(PodMix({WHOLE: 1.0}), "T4", 16, 12000, 4096)
    assert room.view().fragmentation((1000,)) == 0.0
    assert room.after(8000, 0).view().fragmentation((1000,)) == 1.0
    assert GUESS.fragmentation((300, 1000)) == TYPICAL.fragmentation((300, 1000))


def test_views_are_kept_and_bounded() -> None:
    """Equal rooms share a view; more rooms than are kept still get theirs."""
    mix = PodMix({WHOLE: 1.0})
    assert mix.view("T4", 16, 9000, 1) is mix.view("T4", 16, 9000, 1)
    for cpu in range(VIEWS + 2):
        assert lost(mix, 1000, cpu=cpu * 1000) == float(cpu < 8)


def test_rare_kinds_are_left_out() -> None:
    """The most frequent kinds of nearly all pods make the mix, and never too many."""
    rare = PodKind(mem=1)
    assert set(usual_mix({HALF: 60.0, WHOLE: 39.0, rare: 1.0}).kinds) == {HALF, WHOLE}
    assert set(usual_mix({HALF: 60.0, WHOLE: 37.0, rare: 3.0}).kinds) == {HALF, WHOLE, rare}
    many = {PodKind(mem=size): 1.0 for size in range(1, 3 * MOST_KINDS)}
    assert len(usual_mix(many).kinds) == MOST_KINDS
