"""A stack whose nodes offer their GPUs as claims, and what cases ask of it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from environments import claims
from environments.case import Case
from environments.kind import KindEnvironment
from environments.kubectl import Object
from environments.waiting import until


@contextmanager
def offered(environment: KindEnvironment) -> Iterator[None]:
    """Nodes of the stack offer claims; at the end they offer devices, and nothing is left."""
    before = environment.values
    # The webhook would send pods that request aliyun.com/gpu to the second scheduler.
    environment.install({**before, "claims": {"enabled": True}, "webhook": {"enabled": False}})
    environment.kubectl("label", "node", *environment.nodes, f"{claims.LABEL}=claims")
    try:
        wait_offered(environment)
        yield
    finally:
        until("no claim is prepared", lambda: not any(prepared(environment).values()))
        environment.kubectl("label", "node", *environment.nodes, f"{claims.LABEL}-")
        until("no node offers claims", lambda: not environment.kubectl.items("resourceslices"))
        environment.install(before)
        environment.wait_ready()
        assert environment.kubectl.items("deviceclasses") == []
        assert not any(prepared(environment).values())
        for node in environment.nodes:
            left = environment.on_node(node, "ls /var/run/cdi /var/lib/kubelet/plugins_registry")
            assert "claim" not in left
            assert claims.DRIVER not in left


def wait_offered(environment: KindEnvironment) -> None:
    """Wait until every node publishes all its GPUs."""
    until(
        "all nodes offer their GPUs as claims",
        lambda: all(
            len(claims.devices(environment.kubectl, node)) == len(gpus)
            for node, gpus in environment.nodes.items()
        ),
    )


def wait_unused(environment: KindEnvironment) -> None:
    """Wait until the claims of earlier cases are gone: their namespaces go in their own time."""
    until(
        "no claim is left in the cluster",
        lambda: not environment.kubectl.items("resourceclaims", "-A"),
    )
    until("no claim is prepared", lambda: not any(prepared(environment).values()))


def prepared(environment: KindEnvironment) -> dict[str, int]:
    """How many claims are prepared on each node, by the CDI files of our driver."""
    count = "ls /var/run/cdi 2>/dev/null | grep -c gpushare.io-claim_ || true"
    return {node: int(environment.on_node(node, count)) for node in environment.nodes}


def share(
    case: Case,
    name: str,
    gib: int,
    node: str,
    *,
    env: dict[str, str] | None = None,
    **request: Any,
) -> tuple[Object, Object]:
    """A claim, and a pod of the same name that uses it on a node.

    Args:
        request: as of :func:`environments.claims.claim`.
    """
    source = {"resourceClaimName": name}
    image = case.environment.image
    pod = claims.pod(name, case.name, image=image, node=node, source=source, env=env)
    return claims.claim(name, case.name, gib, **request), pod


def consumed(case: Case) -> Counter[str]:
    """GiB that the claims of a namespace consume, by device of our driver."""
    found: Counter[str] = Counter()
    for result in claims.allocated(case.kubectl, case.name):
        if result["driver"] == claims.DRIVER:
            memory = result["consumedCapacity"]["memory"]
            found[result["device"]] += int(memory.removesuffix("Gi"))
    return found
