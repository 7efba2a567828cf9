"""The informers of the extender: what each one follows, and what readiness depends on."""

import asyncio

import pytest

from gpuextender import metrics
from gpuextender.clock import unix_ns
from gpuextender.informers import Informers
from gpuextender.settings import ExtenderSettings
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import ScriptedClient, failure

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
EMPTY = b'{"metadata": {"resourceVersion": "5"}, "items": []}'


def following(*replies: object, **settings: object) -> tuple[Informers, ScriptedClient]:
    """The informers over a client that replies so."""
    client = ScriptedClient(*replies)  # type: ignore[arg-type]
    return Informers(client, ExtenderSettings(**settings)), client


def test_nodes_and_pods_are_vital_and_config_maps_are_not() -> None:
    """RBAC may forbid the ConfigMaps; the extender decides without them."""
    without, _ = following()
    assert [one.name for one in without.all] == ["nodes", "pods"]
    assert without.all == without.vital
    found, _ = following(unhealthy_configmaps=True)
    assert [one.name for one in found.vital] == ["nodes", "pods"]
    assert [one.name for one in found.all] == ["nodes", "pods", "configmaps"]


async def test_config_maps_that_are_forbidden_delay_nothing() -> None:
    """Nodes and pods are enough to be synced."""
    found, _ = following(unhealthy_configmaps=True)
    nodes, pods, maps = found.all
    nodes.synced.set()
    waiting = asyncio.create_task(found.synced())
    await asyncio.sleep(0)
    assert not waiting.done()
    pods.synced.set()
    await asyncio.wait_for(waiting, 60)
    assert not maps.synced.is_set()


@pytest.mark.parametrize(
    ("place", "path", "probe"),
    [(0, NODES, NODES), (1, PODS, "/api/v1/namespaces/default/pods"), (2, MAPS, MAPS)],
    ids=["nodes", "pods", "configmaps"],
)
async def test_each_collection_is_listed_watched_and_checked(
    clock: FakeClock, place: int, path: str, probe: str
) -> None:
    """A list, a watch that is given up before it makes the process unready, then the version."""
    broken = [failure(500)]
    found, client = following(EMPTY, broken, EMPTY, [], unhealthy_configmaps=True, stale_after=60)
    task = asyncio.create_task(found.all[place].run())
    await asyncio.sleep(2.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    listed, watched, checked = client.requests[:3]
    assert (listed.method, listed.path) == ("GET", path)
    assert (watched.method, watched.path, watched.body["silence"]) == ("WATCH", path, 54.0)
    assert (checked.method, checked.path) == ("GET", probe)
    assert checked.body == {"fieldSelector": "metadata.name=gpushare-version-probe"}


async def test_only_a_list_of_pods_shows_which_bindings_were_lost() -> None:
    """A list of nodes is no news of pods; all lists are counted."""
    found, _ = following()
    before = metrics.REFLECTOR_LISTS.labels("nodes")._value.get()
    found.listed("nodes")
    assert metrics.REFLECTOR_LISTS.labels("nodes")._value.get() == before + 1
    assert found.relisted.empty()
    began = unix_ns()
    found.listed("pods")
    assert began <= found.relisted.get_nowait() <= unix_ns()


def test_failures_are_counted_by_collection() -> None:
    """An alert can name the collection."""
    found, _ = following()
    before = metrics.REFLECTOR_FAILURES.labels("pods")._value.get()
    found.failed("pods")
    assert metrics.REFLECTOR_FAILURES.labels("pods")._value.get() == before + 1


def test_the_state_has_the_names_of_the_cluster() -> None:
    """Another resource domain is looked for in nodes and pods."""
    found, _ = following(domain="example.com", assume_ttl=33.0)
    assert found.state.names.gpu_mem == "example.com/gpu-mem"
    assert found.state.reservation_time._limit == 33_000_000_000
