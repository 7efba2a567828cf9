"""Measure the extender with 10,000 nodes and 100,000 pods on a real API server.

make scale                                         10,000 nodes x 8 GPUs, 100,000 pods; compares
                                                   each figure with the recorded one
make scale ARGS='--nodes 20000 --pods 200000'      a larger cluster; printed only
make scale ARGS=--record                           writes docs/benchmarks/scale.json and the page

It ends with 1 where a figure is more than 20 % worse than the recorded one.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from bench.__main__ import about_machine, code
from host.progress import say
from scale import figures, page
from scale.cluster import ScalePlan, measured

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = DOCS / "benchmarks" / "scale.json"
PAGE = DOCS / "benchmarks-scale.md"


def main() -> None:
    """Measure, compare or record, print."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__, formatter_class=form)
    parser.add_argument("--nodes", type=int, default=figures.NODES)
    parser.add_argument("--pods", type=int, default=figures.PODS, help="running pods with shares")
    parser.add_argument("--schedule", type=int, default=600, help="pods through kube-scheduler")
    parser.add_argument("--runs", type=int, default=3, help="number of starts and of call series")
    parser.add_argument("--minutes", type=float, default=60, help="give up after this many minutes")
    parser.add_argument("--record", action="store_true", help="write the figures and the page")
    options = parser.parse_args()
    plan = ScalePlan(options.nodes, options.pods, options.schedule, options.runs)
    found = asyncio.run(measured(plan, seconds=options.minutes * 60))
    found |= {"machine": about_machine(), "code": code()}
    print(json.dumps(found, indent=2))
    if options.record:
        record("scale", found)
    elif (options.nodes, options.pods) == (figures.NODES, figures.PODS):
        sys.exit(_compare(found))


def record(part: str, found: Any) -> None:
    """Replace one part of the recorded figures, and write the page anew."""
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    recorded[part] = found
    RECORDED.write_text(json.dumps(recorded, indent=2) + "\n")
    PAGE.write_text(page.text(recorded))


def _compare(found: dict[str, Any]) -> int:
    recorded = json.loads(RECORDED.read_text()).get("scale")
    if recorded is None:
        say("no figures are recorded to compare with: ARGS=--record")
        return 0
    worse = figures.worse(recorded, found)
    for sentence in worse:
        say(sentence)
    return 1 if worse else 0


if __name__ == "__main__":
    main()
