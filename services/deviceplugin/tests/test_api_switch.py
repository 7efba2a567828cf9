"""Which API a node offers, as the agent finds out and follows it."""

from typing import Any

import msgspec
import pytest

from gpucore.node.allocation.grant import GrantPolicy
from gpucore.units import NodeName
from gpucore.wire.nodes import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.dra.switch import PROBE_SECONDS, RETRY_SECONDS, ApiSwitch
from gpudeviceplugin.state import NodeState
from gpukube.errors import ForbiddenError, NotFoundError


class World:
    """A node, and an API server that answers dry runs.

    Attributes:
        drops: fields of devices that the API server drops, because a feature is off.
        failure: every dry run gets it.
    """

    def __init__(self, *, default: str = "auto", enabled: bool = True) -> None:
        self.state = NodeState(GrantPolicy())
        self.state.api = ""
        self.watch = NodeWatch(self.state.outlook_changed)
        self.requested: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.drops: tuple[str, ...] = ()
        self.failure: Exception | None = None
        self.switch = ApiSwitch(
            self.state,
            self.watch,
            self,
            default=default,
            enabled=enabled,
            on_refused=self.refused.append,
        )

    async def dry_run(self, path: str, body: Any) -> bytes:
        """As the API server's."""
        assert path.endswith("/resourceslices")
        self.requested.append(body)
        if self.failure is not None:
            raise self.failure
        stored = msgspec.json.decode(msgspec.json.encode(body))
        for device in stored["spec"]["devices"]:
            for field in self.drops:
                device.pop(field)
        return msgspec.json.encode(stored)

    def label(self, **labels: str) -> None:
        """The node has these labels."""
        found = {key.replace("_", "/"): text for key, text in labels.items()}
        self.watch.on_update(Node(NodeName("n1"), labels=found), b"")

    async def api(self) -> str:
        """What is offered once the API server was queried, where that is needed."""
        if self.switch._needed():
            await self.switch._ask()
        self.switch.decide()
        return self.state.api


async def test_auto_queries_the_api_server_with_a_slice_of_this_node() -> None:
    """By a dry run, so that nothing is published; an admission policy sees the node's own name."""
    world = World()
    world.state.certain.set()
    world.label()
    assert await world.api() == "claims"
    (requested,) = world.requested
    assert (requested["spec"]["nodeName"], requested["spec"]["driver"]) == ("n1", "gpu.gpushare.io")


@pytest.mark.parametrize("field", ["allowMultipleAllocations", "capacity"])
async def test_a_feature_that_is_off_shows_in_what_would_be_stored(field: str) -> None:
    """Then auto is devices, and the request for claims is refused with the reason."""
    world = World()
    world.drops = (field,)
    world.label()
    assert await world.api() == "devices"
    assert world.refused == []
    world.label(gpushare_api="claims")
    assert await world.api() == "devices"
    assert "Kubernetes 1.36" in world.refused[0]


async def test_a_cluster_without_the_api_has_no_claims() -> None:
    """Kubernetes before 1.34 does not have version v1."""
    world = World()
    world.failure = NotFoundError("POST", status=404, message="no such resource")
    world.label()
    assert await world.api() == "devices"


async def test_without_an_answer_nothing_is_offered_but_what_runs() -> None:
    """Missing permissions are no proof of anything; the next question may be answered."""
    world = World()
    world.failure = ForbiddenError("POST", status=403, message="not yet")
    world.label()
    assert await world.api() == ""
    world.failure = None
    world.state.certain.set()
    assert await world.api() == "claims"


async def test_devices_need_no_question() -> None:
    """By the setting, or by the label; where claims are disabled neither."""
    world = World(default="devices")
    world.label()
    assert await world.api() == "devices"
    world.label(gpushare_api="devices")
    assert await world.api() == "devices"
    assert world.requested == []


async def test_a_refusal_is_reported_once() -> None:
    """And again only where the sentence is another one."""
    world = World(default="devices", enabled=False)
    world.label(gpushare_api="claims")
    for _ in range(3):
        world.switch.decide()
    assert len(world.refused) == 1
    world.label(gpushare_api="nonsense")
    world.switch.decide()
    assert len(world.refused) == 2
    world.label()
    world.switch.decide()
    assert world.switch.why == ""


async def test_nothing_is_decided_without_the_node() -> None:
    """Its label is not known yet."""
    world = World(default="devices")
    world.switch.decide()
    assert world.state.api == ""


def test_questions_keep_their_distance() -> None:
    """A thousand nodes send requests to one API server."""
    assert PROBE_SECONDS >= 60
    assert RETRY_SECONDS >= 1
