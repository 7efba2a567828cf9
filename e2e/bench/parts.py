"""Single parts of the measurement, for whoever changes one thing and wants to know what it did.

A part takes a minute or two beside the making of the cluster; nothing of it goes into the report,
which is of one run of everything.
"""

import asyncio
from collections.abc import Collection
from typing import Any

from bench import digest
from bench.measures import Measures
from bench.subject import Subject
from environments.controlplane import ControlPlane

PARTS = (
    "start",
    "latency",
    "binds",
    "schedule",
    "backlog",
    "creation",
    "bursts",
    "quiet",
    "commands",
)
OF_THEIR_OWN = frozenset({"backlog", "creation", "bursts", "quiet", "commands"})
"""Parts that start an extender for each row, or need none."""


async def measure(
    parts: Collection[str], plane: ControlPlane, measures: Measures, *, nodes: int
) -> dict[str, Any]:
    """The digest of these parts for our own extender."""
    found: dict[str, Any] = {}
    for name in sorted(OF_THEIR_OWN.intersection(parts)):
        results = await getattr(measures, name)()
        found[name] = results if name == "commands" else {str(nodes): results}
    if OF_THEIR_OWN.issuperset(parts):
        return found | {"load_average": measures.loads}
    if "start" in parts:
        ours, seconds, memory = await measures.started()
        found["ready_seconds"] = digest.spread(seconds)
        found["resident_mib"] = digest.spread(memory)
    else:
        ours = await asyncio.to_thread(Subject.ours, plane)
    if "latency" in parts:
        found["latency_ms"] = digest.latencies(await measures.latencies(ours))
    if "binds" in parts:
        found["binds"] = await measures.binds(ours)
    if "schedule" in parts:
        found["end_to_end"] = {str(nodes): await measures.end_to_end(ours)}
    return found | {"load_average": measures.loads}
