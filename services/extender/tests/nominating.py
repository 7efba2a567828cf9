"""Nodes and pending pods of tests of nominations, and what the API server shows of them."""

from objects import Object, node, pod
from running import Running, until

from gpukube.testing.apiserver import FakeApiServer

SCHEDULER = "gpushare-scheduler"


def ready(name: str, *units: int, **labels: str) -> Object:
    """A node that takes pods."""
    item = node(name, *units, unit="GiB", **labels)
    item["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return item


def pending(name: str, mem: int, **more: object) -> Object:
    """A pending pod of the scheduler that calls."""
    item = pod(name, mem, **more)
    item["spec"]["schedulerName"] = more.get("scheduler", SCHEDULER)
    return item


async def nodes(cluster: FakeApiServer, extender: Running, *items: Object) -> None:
    """The extender knows these nodes."""
    for item in items:
        await cluster.put("nodes", item)
        await extender.knows_node(item["metadata"]["name"])


async def known(cluster: FakeApiServer, extender: Running, *items: Object) -> None:
    """The extender knows these pods."""
    for item in items:
        await cluster.put("pods", item)
        name = item["metadata"]["name"]
        await until(f"pod {name} is known", lambda name=name: extender.state.find("default", name))


def nominated(cluster: FakeApiServer, name: str) -> str:
    """The node that the API server shows for a pending pod."""
    return str(cluster.find("pods", name, "default")["status"].get("nominatedNodeName") or "")


def patches(cluster: FakeApiServer, name: str) -> int:
    """How often the status of a pod was written."""
    return cluster.count("PATCH", f"/namespaces/default/pods/{name}/status")
