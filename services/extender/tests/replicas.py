"""Extenders without sockets, an API server with pods, and a watch that brings events when told."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping

from decoded import a_pod
from nominating import SCHEDULER, pending, ready
from objects import Object

from gpucore.scheduling.grouping import Rules
from gpucore.wire.lists import decode_pods_with_constraints
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import Pod
from gpuextender.nomination.nominator import Nominator
from gpuextender.nomination.rounds import Adoption, NominationRounds
from gpuextender.nomination.writes import MANAGER, NominationWrites
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State
from gpukube.errors import ConflictError, NotFoundError, UnreachableError

SIZES = {"a": 16, "b": 12, "c": 8}


class Cluster:
    """An API server with pods, and the log of their changes."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.log: list[tuple[str, Object]] = []
        self.version = 0
        self.patches: list[Object] = []
        self.failures: list[Exception | bytes] = []
        self.broken = False

    def put(self, item: Object) -> Object:
        """Write a pod."""
        self.version += 1
        stored = json.loads(json.dumps(item))
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.pods[stored["metadata"]["name"]] = stored
        self.log.append(("put", stored))
        return stored

    def delete(self, name: str) -> None:
        """Delete a pod."""
        self.log.append(("delete", self.pods.pop(name)))

    def _named(self, path: str) -> Object:
        name = path.removeprefix("/api/v1/namespaces/default/pods/").partition("/")[0]
        if name not in self.pods:
            raise NotFoundError("no pod", status=404, message="not found")
        return self.pods[name]

    async def get(self, path: str) -> bytes:
        """A pod, unless reads fail."""
        if self.broken:
            raise UnreachableError("no route")
        return json.dumps(self._named(path)).encode()

    async def patch(self, path: str, body: bytes) -> bytes:
        """A nomination, or none any more, under the preconditions of the patch."""
        self.patches.append(json.loads(body))
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        if failure is not None:
            return failure
        item, patch = json.loads(json.dumps(self._named(path))), json.loads(body)
        wanted, metadata = patch["metadata"], item["metadata"]
        if any(
            wanted.get(key, metadata[key]) != metadata[key] for key in ("uid", "resourceVersion")
        ):
            raise ConflictError("changed", status=409, message="conflict")
        if "status" in patch:
            nominate(item, patch["status"]["nominatedNodeName"] or "", MANAGER)
        metadata["annotations"] = metadata.get("annotations", {}) | wanted.get("annotations", {})
        return json.dumps(self.put(item)).encode()

    def shown(self, name: str) -> Iterator[Object]:
        """Pending pods that an extender nominated to a node."""
        for item in self.pods.values():
            by = item["metadata"].get("managedFields", [{}])[0].get("manager")
            here = item["status"].get("nominatedNodeName") == name
            if here and by == MANAGER and not item["spec"].get("nodeName"):
                yield item


def nominate(item: Object, node: str, manager: str) -> None:
    """Somebody writes the nomination of a pod; who writes what is there writes nothing."""
    if item["status"].get("nominatedNodeName", "") == node:
        return
    item["status"].pop("nominatedNodeName", None)
    if node:
        item["status"]["nominatedNodeName"] = node
    fields = {"f:status": {"f:nominatedNodeName": {}}} if node else {}
    item["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}]


def read(item: Object) -> Pod:
    """A pod as the informer reads it."""
    raw = json.dumps({"metadata": {}, "items": [item]}).encode()
    return decode_pods_with_constraints(raw).items[0]


class Health:
    """That of an extender; both are sentences, empty where all is well."""

    def __init__(self) -> None:
        self.why_not = self.why_unconfirmed = ""

    def obstacle(self) -> str:
        """Why no decisions may be taken."""
        return self.why_not

    async def unconfirmed(self) -> str:
        """Why the state may be older than the last write of another process."""
        return self.why_unconfirmed


class Replica:
    """An extender without its sockets.

    Args:
        sizes: units of the one GPU of each node.
    """

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], float],
        leads: Callable[[], bool],
        *,
        sizes: Mapping[str, int] = SIZES,
        after: int | None = 0,
        limit: int = 64,
    ) -> None:
        self.cluster, self.now, self.heard = cluster, now, 0
        self.state = State(DEFAULT_NAMES, clock=self.clock)
        for name, size in sizes.items():
            self.state.node_changed(decode_node(json.dumps(ready(name, size)).encode()))
        self.gangs = Gangs(self.state, Rules(), clock=self.clock)
        self.requeue = Requeue(self.state, cluster, self.gangs)  # type: ignore[arg-type]
        self.writes = NominationWrites(self.state, cluster, self.requeue.is_refused)  # type: ignore[arg-type]

        async def leading() -> bool:
            return leads()

        self.writes.leads = leading
        self.nominator = Nominator(
            self.state, self.requeue, self.writes, self.gangs, rules=Rules("binpack"),
            after=after, limit=limit, clock=self.clock, now=now,
        )  # fmt: skip
        self.health = Health()
        adoption = Adoption(self.state, cluster, self.nominator.adopt, now)  # type: ignore[arg-type]
        self.rounds = NominationRounds(
            self.nominator, self.health, self, adoption, now=now,  # type: ignore[arg-type]
        )  # fmt: skip
        self.leads, self.term = leading, 0
        self.requeue.on_refused = self.nominator.refused
        self.state.filter_called = self.nominator.scheduler_called
        self.state.candidates.on_change = self.nominator.node_changed
        self.state.add_event_handler(self.nominator.node_changed)
        self.loop = asyncio.new_event_loop()

    def clock(self) -> int:
        """Nanoseconds."""
        return int(self.now() * 1e9)

    def hear(self, count: int | None = None) -> None:
        """The watch brings the next changes, or all."""
        log = self.cluster.log
        until = len(log) if count is None else min(self.heard + count, len(log))
        for what, item in log[self.heard : until]:
            pod = read(item)
            self.state.pod_gone(pod) if what == "delete" else self.state.pod_changed(pod)
        self.heard = until

    def called(self, name: str = "caller", scheduler: str = SCHEDULER) -> None:
        """The scheduler calls about a pod."""
        self.state.saw(a_pod(pending(name, 1, scheduler=scheduler)))

    def round(self) -> float:
        """The scheduler calls, and a round follows; seconds until the next one."""
        self.called()
        return self.look()

    def look(self) -> float:
        """A round; seconds until the next one."""
        return self.loop.run_until_complete(self.rounds.round())

    def send(self) -> None:
        """One patch is sent."""
        self.loop.run_until_complete(self.writes.send_next())
