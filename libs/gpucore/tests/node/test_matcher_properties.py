"""Whatever pods come, in whatever order: no unit twice, no pod torn apart, plans kept."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodepods import Kubelet, expected, machine, matcher, plan

from gpucore.node.allocation.allocation_error import AllocationError
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.allocation.matcher import Granted
from gpucore.units import GpuIndex

GPUS = 3
UNITS = 10

amounts = st.lists(st.integers(1, 6), min_size=1, max_size=3)
pods = st.lists(st.tuples(amounts, st.integers(0, GPUS - 1), st.booleans()), max_size=8)


def admit(kubelet: Kubelet, sizes: list[int]) -> set[int] | None:
    """Admit a pod as kubelet does; its GPUs, or None where it was refused."""
    gpus: set[int] = set()
    taken: list[str] = []
    for size in sizes:
        answer = kubelet.take(size)
        if isinstance(answer, AllocationError):
            kubelet.used[Resource.MEM] -= set(taken)  # kubelet lets go of a refused pod
            return None
        assert isinstance(answer, Granted)
        assert not set(taken) & set(answer.ids)
        taken += answer.ids
        gpus |= set(answer.gpus)
    return gpus


@pytest.mark.slow
@given(pods)
def test_pods_stay_together_and_gpus_are_never_over_full(
    drawn: list[tuple[list[int], int, bool]],
) -> None:
    """Planned well, planned badly or not at all: one GPU a pod, and no unit is given twice."""
    waiting = [
        expected(
            f"p{i}", *({"gpu-mem": n} for n in sizes), annotations=plan(gpu) if planned else {}
        )
        for i, (sizes, gpu, planned) in enumerate(drawn)
    ]
    kubelet = Kubelet(matcher(machine(*[UNITS] * GPUS), *waiting))
    for sizes, _, _ in drawn:
        gpus = admit(kubelet, sizes)
        assert gpus is None or len(gpus) == 1
    table = kubelet.matcher.tables[Resource.MEM]
    assert all(n <= UNITS for n in table.per_device(kubelet.used[Resource.MEM]).values())


@pytest.mark.slow
@given(pods)
def test_every_plan_that_can_be_kept_is_kept(drawn: list[tuple[list[int], int, bool]]) -> None:
    """Plans that over-fill no GPU: each pod gets the GPU that it was promised."""
    used: Counter[int] = Counter()
    kept = []
    for sizes, gpu, _ in drawn:
        if used[gpu] + sum(sizes) <= UNITS:
            used[gpu] += sum(sizes)
            kept.append((sizes, gpu))
    waiting = [
        expected(f"p{i}", *({"gpu-mem": n} for n in sizes), annotations=plan(gpu))
        for i, (sizes, gpu) in enumerate(kept)
    ]
    kubelet = Kubelet(matcher(machine(*[UNITS] * GPUS), *waiting))
    assert [admit(kubelet, sizes) for sizes, _ in kept] == [{gpu} for _, gpu in kept]


@pytest.mark.slow
@given(pods, st.data())
def test_looking_at_kubelets_account_at_any_moment_changes_no_match(
    drawn: list[tuple[list[int], int, bool]], data: st.DataObject
) -> None:
    """An honest answer of kubelet, however late or partial, never disturbs who comes next."""
    fitting = [(sizes[:1], index % GPUS) for index, (sizes, _, _) in enumerate(drawn)]
    waiting = [
        expected(f"p{i}", {"gpu-mem": n}, annotations=plan(gpu))
        for i, ((n,), gpu) in enumerate(fitting)
    ]
    state = matcher(machine(*[UNITS * 10] * GPUS), *waiting)
    kubelet = Kubelet(state)
    truth: list[Held] = []
    for number, ((size,), gpu) in enumerate(fitting):
        answer = kubelet.take(size)
        assert dict(answer.gpus) == {GpuIndex(gpu): size}
        truth.append(Held("default", f"p{number}", {"c0": {Resource.MEM: answer.ids}}))
        reported = data.draw(st.integers(0, len(truth)))
        state.sync_from_kubelet(truth[:reported], requested_at=data.draw(st.integers(0, reported)))
