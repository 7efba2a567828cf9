"""Do limits of memory hold? Two programs with unequal shares, each trying to take too much."""

from typing import Any, Final

from hardware.clients import Client
from hardware.grants import PublishedGpu, ShareSize
from hardware.site import Site

STEP_MIB: Final = 512
BEYOND: Final = 1.5
"""How far beyond its grant a program tries to go, as a multiple."""


def limits(site: Site, gpu: PublishedGpu) -> dict[str, Any]:
    """Let a small and a large share fill up in turn; MiB, and what became of the other.

    Returns:
        ``unit_mib``, and for ``small`` and ``large`` each ``granted_mib``, ``reached_mib``,
        ``reported_total_mib``, ``refusal`` and ``neighbour_intact``.
    """
    small, large = shares(gpu)
    with site.client(small, gpu=gpu.index) as first, site.client(large, gpu=gpu.index) as other:
        for client in (first, other):
            client.ask("fill", mib=site.unit_mib // 4)
        return {
            "unit_mib": site.unit_mib,
            "small": _fill(first, other, small.units * site.unit_mib),
            "large": _fill(other, first, large.units * site.unit_mib),
        }


def shares(gpu: PublishedGpu) -> tuple[ShareSize, ShareSize]:
    """A quarter and a half of a GPU: unequal, and room is left for what nobody should take."""
    return ShareSize(max(gpu.units // 4, 1)), ShareSize(max(gpu.units // 2, 2))


def _fill(client: Client, neighbour: Client, granted_mib: int) -> dict[str, Any]:
    found = client.ask("exhaust", step_mib=STEP_MIB, most_mib=int(granted_mib * BEYOND))
    intact = neighbour.ask("verify")["intact"] and client.ask("verify")["intact"]
    client.ask("release")
    neighbour_works = neighbour.ask("fill", mib=2)["held_mib"] > 0
    client.ask("fill", mib=2)
    return {
        "granted_mib": granted_mib,
        "reached_mib": found["held_mib"],
        "reported_total_mib": client.gpu["reported_total_bytes"] // (1024 * 1024),
        "refusal": found["refusal"],
        "neighbour_intact": bool(intact and neighbour_works),
    }
