"""Limits of memory: two programs with unequal shares, each trying to take too much.

What one does, and what follows from its answers, is the check of :mod:`gpuprobe.checks.memory`, as
in ``gpushare verify``.
"""

from typing import Any

from gpuprobe.checks import memory
from hardware.clients import Client
from hardware.grants import PublishedGpu, ShareSize
from hardware.site import Site


def limits(site: Site, gpu: PublishedGpu) -> dict[str, Any]:
    """Let a small and a large share fill up in turn; MiB, and what became of the other.

    Returns:
        ``unit_mib``, and for ``small`` and ``large`` each the figures of
        :func:`gpuprobe.checks.memory.filled` and ``neighbour_intact``.
    """
    small, large = shares(gpu)
    with site.client(small, gpu=gpu.index) as first, site.client(large, gpu=gpu.index) as other:
        for client in (first, other):
            client.ask("fill", mib=site.unit_mib // 4)
            client.ask("release")
            client.ask("fill", mib=2)
        return {
            "unit_mib": site.unit_mib,
            "small": _fill(first, other, small.units * site.unit_mib),
            "large": _fill(other, first, large.units * site.unit_mib),
        }


def shares(gpu: PublishedGpu) -> tuple[ShareSize, ShareSize]:
    """A quarter and a half of a GPU: unequal, and room is left for what nobody should take."""
    return ShareSize(max(gpu.units // 4, 1)), ShareSize(max(gpu.units // 2, 2))


def _fill(client: Client, neighbour: Client, allocated_mib: int) -> dict[str, Any]:
    taken, checked, *after = memory.steps(allocated_mib)
    answers = client.run([taken, checked])
    intact = neighbour.ask("verify")["intact"]
    answers += client.run(after)
    neighbour_works = neighbour.ask("fill", mib=2)["held_mib"] > 0
    found = memory.filled(allocated_mib, client.gpu, answers)
    return {**found, "neighbour_intact": bool(intact and found["intact"] and neighbour_works)}
