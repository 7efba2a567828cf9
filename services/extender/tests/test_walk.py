"""A request is followed from its socket to its answer in few files, and never back up."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from objects import node, pod
from running import Running

from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

Calls = list[tuple[str, str]]
PACKAGES = ("gpuextender", "gpucore", "gpukube")


def file_of(frame: FrameType | None) -> str:
    """File of the repository in which a frame runs, as ``package/path``; empty for others."""
    parts = Path(frame.f_code.co_filename).parts if frame else ()
    for package in PACKAGES:
        if package in parts[:-1] and "src" in parts:
            return "/".join(parts[parts.index("src") + 1 :])
    return ""


@contextmanager
def recorded() -> Iterator[Calls]:
    """The calls from one file of the repository into another, as they happen."""
    calls: Calls = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (callee := file_of(frame)):
            caller = frame.f_back
            while caller is not None and not file_of(caller):
                caller = caller.f_back
            calls.append((file_of(caller), callee))

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


ROOT = Path(__file__).parents[3]
OBSERVERS = "gpuextender/nomination/"
"""Observers receive every pod that filter is called for; they add nothing to the answer."""
BYTES = "gpukube/server/"
"""Reads and writes the bytes of a request: routes call it back for them, as ASGI has it."""

CACHE = "gpuextender/scheduling/cache.py"
KEPT = "gpucore/wire/kept.py"


def described(call: str) -> list[str]:
    """The files that ARCHITECTURE.md names for a call, in the order of its table."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page.split(f"`POST /gpushare-scheduler/{call}`", 1)[1].split("\n\n")[1]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [name for row in rows for name in re.findall(r"`([^`]+\.py)`", row)]


def of_the_extender(calls: Calls) -> set[str]:
    """The extender's own files in which something was called, without observers."""
    files = {callee for _, callee in calls}
    return {file for file in files if file.startswith("gpuextender/") and OBSERVERS not in file}


def rises(calls: Calls) -> None:
    """Fail where a file calls into another that called it, over however many files.

    What keeps results calls the function that it was given for missing ones, which is no climb.
    """
    below = TopologicalSorter[str]()
    for caller, callee in calls:
        given = caller == KEPT or (caller == CACHE and "/scheduling/" in callee)
        observed = OBSERVERS in caller or OBSERVERS in callee
        if caller and caller != callee and not (given or observed) and BYTES not in callee:
            below.add(caller, callee)
    below.prepare()


@pytest.fixture
async def nodes(extender: Running, cluster: FakeApiServer) -> Running:
    """Two nodes, of which one is too small."""
    for name, units in (("n1", 4), ("n2", 1)):
        await cluster.put("nodes", node(name, units, units, unit="GiB"))
        await extender.knows_node(name)
    return extender


async def test_a_filter_request_goes_through_the_ten_files_of_its_table(nodes: Running) -> None:
    """The page that a newcomer reads names every file of the extender on the way."""
    await nodes.filter(pod("first", 2, uid="first"), "n1", "n2")  # after a quiet time it does more
    with recorded() as calls:
        answer = await nodes.filter(pod("p", 2, uid="p"), "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert len(described("filter")) <= 10
    assert of_the_extender(calls) <= set(described("filter"))


async def test_a_filter_request_never_climbs_back(nodes: Running) -> None:
    """No file on the way calls into one above it, whether the pod fits or not."""
    with recorded() as calls:
        await nodes.filter(pod("p", 2, uid="p"), "n1", "n2")
        await nodes.filter(pod("q", 9, uid="q"), "n1", "n2")
    rises(calls)


def test_a_climb_is_noticed() -> None:
    """The check itself can fail."""
    with pytest.raises(CycleError):
        rises([("a.py", "b.py"), ("b.py", "c.py"), ("c.py", "a.py")])
