"""The load of a chaos run: what it counts as lost, and what it replaces."""

import random
import time
from typing import Any

import msgspec
import pytest

from chaos.load import PODS, ROOM_SECONDS, PodLoad

Object = dict[str, Any]


class PodStore:
    """Stands in for the calls to an API server: pods by name."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.refuse: set[str] = set()

    async def call(self, verb: str, path: str, body: Any = None, **_: Any) -> bytes:
        """One call; raises as ApiCalls does."""
        if verb in self.refuse:
            raise AssertionError(f"{verb} {path}: 503")
        name = path.removeprefix(f"{PODS}/")
        if verb == "POST":
            meta = body["metadata"]
            self.pods.setdefault(
                meta["name"],
                {"metadata": {**meta, "uid": f"uid-{len(self.pods)}"}, "status": {}, "spec": {}},
            )
        elif verb == "DELETE":
            self.pods.pop(name, None)
        elif path == PODS:
            return msgspec.json.encode({"items": list(self.pods.values())})
        return msgspec.json.encode(self.pods.get(name))


def load(store: PodStore, units: int = 1000) -> PodLoad:
    """A load on that store."""
    return PodLoad(store, random.Random(1), units=units)  # type: ignore[arg-type]


async def test_a_pod_that_nobody_deleted_and_is_gone_is_lost() -> None:
    """A pod of the same name with another UID is another pod."""
    store = PodStore()
    one = load(store)
    await one.step()
    await one.step()
    assert one.created == 2
    del store.pods["load-000000"]
    store.pods["load-000001"]["metadata"]["uid"] = "another"
    await one.step()
    assert [sentence.partition(" ")[0] for sentence in one.lost] == ["load-000000", "load-000001"]


async def test_a_pod_that_its_kubelet_refused_is_deleted_and_counted() -> None:
    """It is no lost pod: a controller would create another."""
    store = PodStore()
    one = load(store)
    await one.step()
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}
    store.pods["load-000000"]["status"] = status
    await one.step()
    await one.step()
    assert "load-000000" not in store.pods
    assert (one.refused["no devices"], one.lost) == (1, [])


async def test_a_deletion_without_an_answer_is_sent_again() -> None:
    """A pod whose deletion may have taken place is neither lost nor left."""
    store = PodStore()
    one = load(store, units=1)
    await one.step()
    one.growing = False
    store.refuse = {"DELETE"}
    await one.step()
    assert "load-000000" in store.pods
    store.refuse = set()
    await one.step()
    await one.step()
    assert "load-000000" not in store.pods
    assert one.lost == []


async def test_running_pods_make_room_for_one_that_waits_while_none_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No GPU may be entirely free for it; it stays itself, so one that is never placed is seen."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    store = PodStore()
    one = load(store)
    for _ in range(3):
        await one.step()
    waits, *others = store.pods
    for name in others:
        store.pods[name]["status"] = {"phase": "Running"}
    await one.step()
    one.growing = False
    now += ROOM_SECONDS
    await one.step()
    created = len(store.pods)
    for _ in range(2 * created):
        now += 1
        await one.step()
        for pod in store.pods.values():
            if pod["metadata"]["name"] != waits:
                pod["status"] = {"phase": "Running"}
    assert [*store.pods] == [waits]
    assert one.lost == []


async def test_a_creation_without_an_answer_is_sent_again_under_its_name() -> None:
    """Or a pod that was created unnoticed would never be deleted."""
    store = PodStore()
    one = load(store)
    store.refuse = {"POST"}
    await one.step()
    store.refuse = set()
    await one.step()
    assert (one.created, list(store.pods)) == (1, ["load-000000"])
