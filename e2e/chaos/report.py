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
    """Recovery by what was killed: number, median, slowest; the API server's own start beside."""
    rows: dict[str, list[RoundResult]] = defaultdict(list)
    for one in run.rounds:
        kinds = sorted({name.partition(" ")[0] for name in one.killed})
        rows[kinds[0] if len(kinds) == 1 else "two at once"].append(one)
    lines = [
        "| killed | times | recovery s, median | slowest | API server ready again s, median |",
        "|---|---|---|---|---|",
    ]
    for kind, found in sorted(rows.items()):
        seconds = sorted(one.seconds for one in found)
        api = sorted(one.api_seconds for one in found if one.api_seconds)
        own = f"{api[len(api) // 2]:.1f}" if api and kind in CONTROL_PLANE else ""
        cells = (kind, len(found), f"{seconds[len(seconds) // 2]:.1f}", f"{seconds[-1]:.1f}", own)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _range(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}" if values else "-"
