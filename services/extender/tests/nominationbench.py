"""One extender that nominates, step by step: what is reserved, what is written, and when it looks.

Times are seconds of a clock that the test moves.
"""

import json
from collections.abc import Mapping

from nominating import pending, ready
from objects import Object
from replicas import SIZES, Cluster, Replica, nominate, read

from gpucore.units import NodeName
from gpucore.wire.node.spec import decode_node
from gpuextender import metrics


class Bench:
    """A cluster and the extender beside its scheduler; each node has one GPU."""

    def __init__(
        self, *, sizes: Mapping[str, int] = SIZES, after: int | None = 0, limit: int = 64
    ) -> None:
        self.time, self.leads = 1000.0, True
        self.cluster = Cluster()
        self._options = {"sizes": sizes, "after": after, "limit": limit}
        self._begin()

    def _begin(self) -> None:
        self.replica = Replica(
            self.cluster,
            lambda: self.time,
            lambda: self.leads,
            **self._options,
        )
        self.state, self.nominator = self.replica.state, self.replica.nominator

    def restart(self) -> None:
        """The extender starts anew, and has listed all pods."""
        self.replica.loop.close()
        self._begin()
        self.hear()

    # The cluster.

    def comes(self, *items: Object) -> None:
        """Pods are created, and the watch brings them."""
        for item in items:
            self.cluster.put(item)
        self.hear()

    def goes(self, name: str) -> None:
        """A pod is deleted, and the watch brings it."""
        self.cluster.delete(name)
        self.hear()

    def hear(self) -> None:
        """The watch brings everything."""
        self.replica.hear()

    def stored(self, name: str) -> Object:
        """A copy of a pod as the API server has it."""
        return json.loads(json.dumps(self.cluster.pods[name]))

    def scheduler_writes(self, name: str, node: str = "") -> None:
        """kube-scheduler nominates a pod, or clears its nomination."""
        item = self.stored(name)
        nominate(item, node, "kube-scheduler")
        self.comes(item)

    def binds(self, name: str) -> None:
        """The scheduler binds a pod where it is nominated, and the watch brings that."""
        item = self.stored(name)
        allocation = self.state.ledger.nomination(item["metadata"]["uid"])
        item["spec"]["nodeName"] = allocation.placement.node
        item["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": "0"}
        self.comes(item)

    def node(self, name: str, *units: int, **changes: object) -> None:
        """A node comes or is changed: ``healthy``, ``ready``, ``allocatable``, and its spec."""
        item = ready(name, *units)
        found = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
        found["gpus"][0]["healthy"] = changes.pop("healthy", True)
        item["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(found)
        status = "True" if changes.pop("ready", True) else "False"
        item["status"]["conditions"] = [{"type": "Ready", "status": status}]
        item["status"]["allocatable"] |= changes.pop("allocatable", {})
        item["spec"] = changes
        self.state.node_changed(decode_node(json.dumps(item).encode()))

    # The extender.

    def round(self) -> float:
        """The scheduler calls, and a round follows; seconds until the next one."""
        return self.replica.round()

    def look(self) -> float:
        """A round without a call of the scheduler."""
        return self.replica.look()

    def send(self) -> None:
        """All patches are sent, and the watch brings what they changed."""
        self.send_unheard()
        self.hear()

    def send_unheard(self) -> None:
        """All patches are sent; the watch is behind."""
        while len(self.replica.writes):
            self.replica.send()

    def refused(self, name: str, *nodes: str) -> None:
        """The scheduler offered these nodes for a pod, and none can take it."""
        found = self.state.find("default", name)
        self.state.saw(found.pod)
        self.replica.requeue.refused(
            found,
            found.pod_request,
            [NodeName(node) for node in nodes],
            judged=self.replica.requeue.change,
        )

    def nominated(self, *items: Object) -> None:
        """These pods come, are nominated, and the watch brings it."""
        self.comes(*items)
        self.round()
        self.send()

    # What there is.

    @property
    def reserved(self) -> dict[str, str]:
        """The node that is reserved for each nominated pod, by name."""
        ledger = self.state.ledger
        found = [ledger.nomination(uid) for uid in ledger.nominations()]
        return {one.name: str(one.placement.node) for one in found if one is not None}

    @property
    def shown(self) -> dict[str, str]:
        """The nodes that the API server shows for nominated pods."""
        statuses = {name: item["status"] for name, item in self.cluster.pods.items()}
        found = {name: one.get("nominatedNodeName") for name, one in statuses.items()}
        return {name: node for name, node in found.items() if node}

    @property
    def written(self) -> list[str]:
        """What each patch wrote: a node, or nothing where it cleared."""
        return [one["status"]["nominatedNodeName"] or "" for one in self.cluster.patches]

    def saw(self, item: Object) -> None:
        """The scheduler calls about this pod."""
        self.state.saw(read(item))


def gang(name: str, size: int = 2, mem: int = 8, group: str = "g", **more: object) -> Object:
    """A pending pod of a gang."""
    labels = {"gpu-topology": group, "gpu-topology-replica": str(size)}
    return pending(name, mem, labels=labels, **more)


def count(outcome: str) -> float:
    """The metric of nominations by outcome."""
    return metrics.NOMINATIONS.labels(outcome)._value.get()
