"""An API server with the Eviction API, a Lease, events, and controllers that replace pods."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer
from jsonpatches import PatchError, patched

Object = dict[str, Any]
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/gpushare-defrag"
WEBHOOK = 'admission webhook "keep.example.com" denied the request: this pod stays'
NO_KIND = (
    'Eviction in version "v1" cannot be handled as a Eviction: no kind "Eviction" is registered for'
    ' version "policy/v1"'
)
OVERLOADED = "Too many requests, please try again later."
"""Body of the 429 of an API server that has no time for a request."""
NO_ROLE = (
    'pods "b" is forbidden: User "system:serviceaccount:gpushare:gpushare-idle" cannot create'
    ' resource "pods/eviction" in API group "" in the namespace "default"'
)
QUOTA = 'events "b.1" is forbidden: exceeded quota: objects, requested: count/events=1'
TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)
"""Message of the Eviction API, whose status is 500."""
IDLE_LEASE = f"{LEASES}/gpushare-idle"


class EvictingServer(FakeApiServer):
    """Serves a drawn cluster.

    Attributes:
        evicted: names of evicted pods, in order; ``tried`` those of dry runs.
        events: as they were created.
        before: called with the name of a pod before it is evicted; a race is written here.
        refused: status of the eviction of a pod by name, such as 429.
        why: message of these refusals and of those of events; empty for that of a budget.
        lease: the Lease; ``None`` where there is none.
        no_events: status of the creation of events; 0 where they are taken.

    Args:
        lease_path: of the Lease.
    """

    def __init__(self, cluster: FakeCluster, *, lease_path: str = LEASE) -> None:
        nodes = [item for item in cluster.items if item["kind"] == "Node"]
        pods = [item for item in cluster.items if item["kind"] == "Pod"]
        empty: dict[str, list[Object]] = {
            path: []
            for path in (
                "/api/v1/configmaps",
                "/api/v1/namespaces/kube-system/configmaps",
                "/apis/resource.k8s.io/v1/resourceslices",
                "/apis/resource.k8s.io/v1/resourceclaims",
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            )
        }
        super().__init__({NODES: nodes, PODS: pods, **empty})
        for pod in pods:
            pod["metadata"].setdefault("resourceVersion", "1")
        self.evicted: list[str] = []
        self.tried: list[str] = []
        self.events: list[Object] = []
        self.before: Callable[[str], None] = lambda _: None
        self.refused: dict[str, int] = {}
        self.why = ""
        self.lease: Object | None = None
        self.no_events = 0
        self._lease_path = lease_path

    @property
    def pods(self) -> list[Object]:
        """All pods."""
        return self.lists[PODS]

    def pod(self, name: str) -> Object:
        """The pod of this name."""
        return next(pod for pod in self.pods if pod["metadata"]["name"] == name)

    def answer(self, target: str, *, authorized: bool) -> tuple[int, Object | str]:
        """As the base, and the Lease."""
        if target == self._lease_path:
            return (200, self.lease) if self.lease else (404, {"message": "not found"})
        return super().answer(target, authorized=authorized)

    def posted(self, path: str, body: Object) -> tuple[int, Object]:
        """An eviction, an event or the Lease."""
        if path.endswith("/eviction"):
            return self._eviction(body)
        if path.endswith("/events") and self.no_events:
            return self.no_events, {"message": self.why or "the fake refuses"}
        if path.endswith("/events"):
            self.events.append(body)
            return 201, body
        if path == LEASES:
            if self.lease:
                return 409, {"message": "already exists"}
            body["metadata"]["resourceVersion"] = "1"
            self.lease = body
            return 201, body
        return super().posted(path, body)

    def patched(self, path: str, operations: list[Object]) -> tuple[int, Object]:
        """The Lease, whose resource version grows."""
        if path != self._lease_path or self.lease is None:
            return super().patched(path, operations)
        try:
            self.lease = patched(self.lease, operations)
        except PatchError:
            return 422, {"message": "the patch does not apply"}
        version = int(self.lease["metadata"]["resourceVersion"]) + 1
        self.lease["metadata"]["resourceVersion"] = str(version)
        return 200, self.lease

    def _eviction(self, body: Object) -> tuple[int, Object]:
        name, options = body["metadata"]["name"], body["deleteOptions"]
        dry_run = options.get("dryRun") == ["All"]
        if not dry_run:
            self.before(name)
        found = [pod for pod in self.pods if pod["metadata"]["name"] == name]
        if not found:
            return 404, {"message": f'pods "{name}" not found'}
        metadata = found[0]["metadata"]
        wanted = options["preconditions"]
        if any(metadata[key] != wanted[key] for key in ("uid", "resourceVersion")):
            return 409, {"message": "the precondition is not met"}
        if name in self.refused:
            status = self.refused[name]
            budget = self.why or "it would violate the pod's disruption budget"
            return status, {"message": TWO_BUDGETS if status == 500 else budget}
        (self.tried if dry_run else self.evicted).append(name)
        if not dry_run:
            self._replace(found[0])
        return 201, {"kind": "Status", "status": "Success"}

    def _replace(self, pod: Object) -> None:
        """The pod is being deleted, and its controller creates another one."""
        other = copy.deepcopy(pod)
        pod["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat(timespec="seconds")
        metadata = other["metadata"]
        metadata |= {"name": f"{metadata['name']}-new", "uid": f"{metadata['uid']}-new"}
        metadata |= {"annotations": {}, "creationTimestamp": "2026-01-02T04:00:00Z"}
        del other["spec"]["nodeName"]
        other["status"] = {"phase": "Pending"}
        self.pods.append(other)
