"""A run in a few lines: recovery by what was killed, and every violation."""

from collections import defaultdict
from typing import Any

from chaos.rounds import CONTROL_PLANE, ChaosRun, RoundResult


def text(run: ChaosRun) -> str:
    """For a terminal."""
    lines = [
        f"seed {run.seed}: {len(run.rounds)} kills",
        f"{run.created} pods created, {run.completed} succeeded by themselves",
        *table(run),
        f"accounts equal after {_range(run.settled)} s at {len(run.settled)} pauses",
        *(f"refused {count}: {why}" for why, count in sorted(run.refused.items())),
        f"violations: {len(run.violations)}",
        *run.violations,
    ]
    return "\n".join(lines)


def recorded(run: ChaosRun) -> dict[str, Any]:
    """For the page."""
    return {
        "seed": run.seed,
        "kills": len(run.rounds),
        "pods": run.created,
        "refused": sum(run.refused.values()),
        "pauses": len(run.settled),
        "settled_seconds": round(max(run.settled, default=0.0), 1),
        "table": table(run),
        "violations": run.violations,
    }


def table(run: ChaosRun) -> list[str]:
    """Recovery by what was killed, and the times before it, which are not ours."""
    rows: dict[str, list[RoundResult]] = defaultdict(list)
    for one in run.rounds:
        kinds = sorted({name.partition(" ")[0] for name in one.killed})
        rows[kinds[0] if len(kinds) == 1 else "two at once"].append(one)
    head = ["killed", "times", "recovery s, median", "slowest", "API server ready again s, median"]
    if elected := any(one.leader_seconds for one in run.rounds):
        head += ["scheduler leads again s, median", "slowest"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for kind, found in sorted(rows.items()):
        own = [one.api_seconds for one in found if kind in CONTROL_PLANE]
        cells = [kind, str(len(found)), *_spread([one.seconds for one in found]), _spread(own)[0]]
        cells += _spread([one.leader_seconds for one in found]) if elected else []
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(seconds: list[float]) -> tuple[str, str]:
    """Median and most, of those that are not 0."""
    found = sorted(filter(None, seconds))
    return (f"{found[len(found) // 2]:.1f}", f"{found[-1]:.1f}") if found else ("", "")


def _range(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}" if values else "-"
