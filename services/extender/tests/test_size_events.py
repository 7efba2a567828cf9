"""Events with the recommended size: for whom, how often, and about which pod."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from decoded import a_node, state_of
from objects import Object, pod
from sizingside import GIB, MEM, history

from gpucore.accounting.node_info import NodeInfo
from gpucore.sizing.evidence import DAY, SizingRules
from gpucore.sizing.known_histories import HistoryRead, KnownHistories
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.wire.namespaces import Namespace
from gpuextender.sizing import size_events
from gpuextender.sizing.namespaces import NamespaceRules
from gpuextender.sizing.size_events import RECOMMENDED, SLOT_SECONDS, SizeEvents
from gpukube.blocking import BlockingClient
from gpukube.testing.apiserver import FakeApiServer

TODAY = 20_000 * DAY
WANTS = {"gpushare/sizing": "recommend"}


def slot(namespace: str) -> float:
    """Unix seconds at which the events of a namespace are due."""
    number = int.from_bytes(sha256(namespace.encode()).digest()[:8])
    return TODAY + number % (int(DAY) - SLOT_SECONDS)


def running(
    name: str, *, namespace: str = "team", owner: str = "web", day: int = 1, **more: Any
) -> Object:
    """A running pod of a Deployment with 8 units."""
    item = pod(name, 8, namespace=namespace, node="n", **more)
    item["metadata"]["creationTimestamp"] = f"2024-01-{day:02}T00:00:00Z"
    item["metadata"]["labels"] = {"pod-template-hash": "abc"}
    reference = {"kind": "ReplicaSet", "name": f"{owner}-abc", "uid": "o", "controller": True}
    item["metadata"]["ownerReferences"] = [reference]
    item["status"] = {**item.get("status", {}), "phase": "Running"}
    return item


class Recording:
    """One replica of the webhook, at a time that a test sets."""

    def __init__(self, cluster: FakeApiServer, folder: Path, known: KnownHistories) -> None:
        self.cluster, self.now, self.known = cluster, slot("team"), known
        config = cluster.write_kubeconfig(folder)
        self.rules = NamespaceRules(MEM)
        self.rules.known = lambda: True
        self.state = state_of(a_node("n", 16, 40))
        self.events = SizeEvents(
            known,
            self.rules,
            lambda: BlockingClient.connect(config, user_agent="test", seconds=10),
            SizingRules(),
            clock=lambda: self.now,
            monotonic=lambda: 0.0,
        )
        self.namespaces()

    def namespaces(self, **annotations: dict[str, str]) -> None:
        """All namespaces with their annotations."""
        named = {"team": {}, "other": {}, **annotations}
        (_, handler), *_ = self.rules.followed()
        handler.on_replace([Namespace(name, each) for name, each in named.items()])

    def measured(self, *histories: UsageHistory, whole: bool = True) -> None:
        """What the last read brought."""
        self.known.put(HistoryRead(0.0, {each.key: each for each in histories}, whole))

    async def look(self, seconds: float = 0.0) -> list[Object]:
        """Time passes, and events are recorded; returns all of them."""
        self.now += seconds
        infos: list[NodeInfo] = list(self.state.ledger.nodes().values())
        await self.events.look(infos)
        return self.cluster.all("events")


@pytest.fixture
def recording(cluster: FakeApiServer, tmp_path: Path) -> Recording:
    """A workload that uses 2 of 8 GiB."""
    made = Recording(cluster, tmp_path, KnownHistories(900.0))
    made.measured(history(1, 2))
    return made


async def test_an_event_has_the_size_and_the_reason(recording: Recording) -> None:
    """About the newest pod of the workload, by its UID."""
    await recording.cluster.put("pods", running("web-1", day=1))
    await recording.cluster.put("pods", running("web-2", day=2))
    recording.namespaces(team=WANTS)
    (event,) = await recording.look()
    stored = recording.cluster.find("pods", "web-2", "team")
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["uid"]) == (
        "Pod",
        "web-2",
        stored["metadata"]["uid"],
    )
    assert (event["type"], event["reason"]) == ("Normal", RECOMMENDED)
    assert event["message"] == (
        "Deployment web, container c0: request 3 instead of 8 units of GPU memory (GiB each):"
        " it used at most 2.0 GiB, with a margin of 15 %"
    )
    assert event["metadata"]["namespace"] == "team"
    assert re.fullmatch(r"gpushare-sizing-[0-9a-f]{24}\.20241004", event["metadata"]["name"])


async def test_the_annotation_of_a_pod_is_enough(recording: Recording) -> None:
    """And takes precedence over that of its namespace."""
    await recording.cluster.put("pods", running("web-1", annotations=WANTS))
    assert len(await recording.look()) == 1


@pytest.mark.parametrize("mode", ["", "off", "initial", "always"])
async def test_without_the_mode_nothing_is_recorded(recording: Recording, mode: str) -> None:
    """For whatever else the owner chose."""
    await recording.cluster.put("pods", running("web-1"))
    recording.namespaces(team={"gpushare/sizing": mode} if mode else {})
    assert await recording.look() == []


async def test_there_is_one_event_a_day(recording: Recording, tmp_path: Path) -> None:
    """Also with a second replica, and after a restart."""
    await recording.cluster.put("pods", running("web-1", annotations=WANTS))
    await recording.look()
    await recording.look(300)
    restarted = Recording(recording.cluster, tmp_path, recording.known)
    assert len(await restarted.look(600)) == 1
    assert len(await recording.look(DAY - 300)) == 2


async def test_pods_are_listed_in_the_slot_of_their_namespace_only(recording: Recording) -> None:
    """Once a day, whatever there is to record."""
    await recording.cluster.put("pods", running("web-1"))
    await recording.look(-1)
    await recording.look(1 + SLOT_SECONDS)
    assert recording.cluster.lists("pods") == 0
    await recording.look(-1)
    await recording.look(-300)
    assert recording.cluster.lists("pods") == 1


async def test_a_size_that_is_right_is_no_event(recording: Recording) -> None:
    """Neither is a workload without a recommendation."""
    recording.namespaces(team=WANTS)
    await recording.cluster.put("pods", running("web-1"))
    recording.measured(history(5, 6.5))
    assert await recording.look() == []
    recording.measured(history(7.9, 7.9))
    assert await recording.look(DAY) == []


async def test_while_a_node_is_missing_only_more_is_recommended(recording: Recording) -> None:
    """The peak may have been there; the last read of all nodes is a day old."""
    recording.known.put(HistoryRead(-2 * DAY, {}, whole=True))
    recording.namespaces(team=WANTS)
    await recording.cluster.put("pods", running("web-1"))
    recording.measured(history(1, 2), whole=False)
    assert await recording.look() == []
    recording.measured(history(1, 7.5), whole=False)
    (event,) = await recording.look(DAY)
    assert "request 9 instead of 8" in event["message"]


async def test_pods_of_other_namespaces_and_other_states_are_left_out(
    recording: Recording,
) -> None:
    """A name of a workload is one of its namespace."""
    recording.namespaces(other=WANTS)
    await recording.cluster.put("pods", running("web-1", namespace="other"))
    ended = running("web-2", annotations=WANTS)
    ended["status"]["phase"] = "Succeeded"
    await recording.cluster.put("pods", ended)
    assert await recording.look() == []


async def test_events_of_a_namespace_are_bounded(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that free most come first."""
    monkeypatch.setattr(size_events, "MOST_EVENTS", 2)
    recording.namespaces(team=WANTS)
    histories = []
    for number, used in enumerate((3, 1, 4, 2)):
        await recording.cluster.put("pods", running(f"p-{number}", owner=f"w{number}"))
        one = history(used, used / 2)
        one.key = WorkloadKey("team", "Deployment", f"w{number}", "c0")
        histories.append(one)
    recording.measured(*histories)
    names = {each["involvedObject"]["name"] for each in await recording.look()}
    assert names == {"p-1", "p-3"}


async def test_a_list_that_fails_is_tried_again_while_the_slot_lasts(
    recording: Recording,
) -> None:
    """And the process goes on."""
    await recording.cluster.put("pods", running("web-1", annotations=WANTS))
    recording.cluster.fail_next("list", _refused)
    assert await recording.look() == []
    assert len(await recording.look(300)) == 1


async def _refused(_: web.Request) -> web.Response:
    return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)


async def test_without_one_unit_of_all_nodes_nothing_is_recorded(recording: Recording) -> None:
    """While the state of the nodes is not known, too."""
    await recording.cluster.put("pods", running("web-1", annotations=WANTS))
    await recording.events.look([])
    assert recording.cluster.all("events") == []
    assert history(1).peak_bytes == GIB
