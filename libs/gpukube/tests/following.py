"""An informer that follows the nodes of a fake API server, with short waits."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gpucore.wire.lists import decode_node_event, decode_nodes
from gpucore.wire.node.spec import Node
from gpukube.backoff import Backoff
from gpukube.client import HttpKubeClient
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.waiting import WAIT_SECONDS
from gpukube.watch.collection import Collection
from gpukube.watch.informer import Informer

NODES = Collection(
    "nodes", "/api/v1/nodes", decode_nodes, decode_node_event, version_path="/api/v1/nodes"
)
UNCHECKED = Collection("nodes", "/api/v1/nodes", decode_nodes, decode_node_event)
"""Without a path at which the informer could read the version of the server."""


class FakeHandler:
    """Keeps the objects that it gets, and how."""

    def __init__(self) -> None:
        self.items: set[str] = set()
        self.lists = 0
        self.calls: list[tuple[str, str]] = []

    def on_replace(self, items: Iterable[Node]) -> None:
        self.items = {item.name for item in items}
        self.lists += 1

    def on_update(self, item: Node, line: bytes) -> None:
        self.items.add(item.name)
        self.calls.append(("changed", item.name))

    def on_delete(self, item: Node) -> None:
        self.items.discard(item.name)
        self.calls.append(("gone", item.name))


@asynccontextmanager
async def following(
    cluster: FakeApiServer,
    folder: Path,
    *,
    silence: float = 60,
    collection: Collection[Node] = NODES,
    **options: Any,
) -> AsyncIterator[tuple[FakeHandler, Informer[Node]]]:
    """A synced informer with short waits."""
    path = cluster.write_kubeconfig(folder)
    options = {"in_pieces": True, "backoff": short_waits(), **options}
    async with await HttpKubeClient.connect(path, user_agent="test") as api:
        handler = FakeHandler()
        one = Informer(api, collection, handler, silence=silence, **options)
        task = asyncio.create_task(one.run())
        try:
            await asyncio.wait_for(one.wait_for_sync(), WAIT_SECONDS)
            yield handler, one
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def short_waits() -> Backoff:
    """Waits of ten to twenty milliseconds."""
    return Backoff(first=0.01, last=0.02, source=random.Random(1))
