"""Fragmentation gradient descent by its published formulas, on cases computed by hand."""

import pytest

from gpucore.model import Placement
from gpucore.scheduling.policy import place
from gpucore.simulate.hosts import Host, mix_of
from gpucore.simulate.published import PublishedMix, published_policy
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.units import NodeName


def work(gpus: int, milli: int, cpu: int = 1000, models: tuple[str, ...] = ()) -> TracePod:
    """A pod of a trace."""
    return TracePod("p", cpu, 1, gpus, milli, frozenset(models))


def test_the_mix_is_the_most_frequent_shapes_of_95_per_cent() -> None:
    """Shapes by falling count until 95 % of the pods are covered; CPU-only pods count."""
    pods = [work(1, 500)] * 60 + [work(0, 0)] * 35 + [work(8, 1000)] * 5
    view = PublishedMix(pods).on("T4", 64_000)
    assert [(kind.milli, kind.gpus, kind.weight) for kind in view.kinds] == [(500, 1, 60.0)]
    assert view.unresolvable == 35.0


def test_all_is_lost_to_a_shape_that_misses_cpu_or_model() -> None:
    """By the CPU that is left and the node's model; host memory does not count."""
    mix = PublishedMix([work(1, 500, 4000), work(1, 500, 4000, ("A10",))])
    assert mix.on("T4", 4000).fragmentation((1000,)) == pytest.approx(0.5)
    assert mix.on("A10", 4000).fragmentation((1000,)) == 0.0
    assert mix.on("A10", 3999).fragmentation((1000,)) == 1.0
    assert mix.on("A10", 4001) is mix.on("A10", 9999)


@pytest.mark.parametrize(
    ("used", "score"),
    [
        (0, 0.37),  # 700 of the GPU are lost to exclusive pods: 100 / (1 + e^(0.7 * 0.75))
        (500, 0.55),  # 300 of the lost 500 are gone: 100 / (1 + e^(-0.3 * 0.75))
    ],
)
def test_the_score_is_the_logistic_function_of_the_fall_cut_to_a_whole_number(
    used: int, score: float
) -> None:
    """Exclusive pods are three quarters of the mix, small shares that always fit the rest."""
    mix = PublishedMix([work(1, 1000)] * 3 + [work(1, 1)])
    host = Host(TraceNode("n", 64_000, 1000, 1, "T4"), mix_of([]))
    if used:
        host.take(work(1, used, 0), Placement(NodeName("n"), {0: used}))  # type: ignore[dict-item]
    request = work(1, 300, 0).pod_request()
    policy = published_policy(mix)
    placement = place(host.node_info, request, policy)
    assert isinstance(placement, Placement)
    assert policy.rate(host.node_info, request, placement) == (pytest.approx(score),)
