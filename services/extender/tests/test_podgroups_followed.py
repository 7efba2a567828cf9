"""PodGroups are followed where the API server serves them, and pods of refused ones go back."""

from pathlib import Path

import pytest
from objects import Object, node, placed, pod
from running import Running, until

from gpuextender import informers
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

LISTS = ("GET", "/apis/scheduling.k8s.io/v1beta1/podgroups")


def group(minimum: int) -> Object:
    """The PodGroup ``g``."""
    policy = {"gang": {"minCount": minimum}}
    return {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": policy},
    }


def member(number: int) -> Object:
    """A pod of it that needs a GPU."""
    item = pod(f"g{number}", 8, uid=f"g{number}")
    item["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return item


async def prepare(cluster: FakeApiServer, extender: Running, pods: int) -> list[Object]:
    """A node of two GPUs, and pods of the group."""
    await cluster.put("nodes", node("n", 8, 8, unit="GiB"))
    await extender.knows_node("n")
    items = [member(number) for number in range(pods)]
    for item in items:
        await cluster.put("pods", item)
        name = item["metadata"]["name"]
        await until(f"pod {name} is known", lambda name=name: extender.state.find("default", name))
    return items


async def test_a_group_waits_until_it_fits_and_then_goes_back(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Two pods, one GPU: refused; the other GPU becomes free, and the refused pod is patched."""
    cluster.pod_groups = True
    await cluster.put("podgroups", group(2))
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await cluster.put("pods", held := placed(pod("held", 8, uid="held"), "n", 0))
        first, second = await prepare(cluster, extender, 2)
        await extender.knows_pod("held")
        await until("its size is read", lambda: size_of(extender) == 2)
        assert (await extender.filter(first, "n"))["NodeNames"] == []
        await cluster.delete("pods", held["metadata"]["name"], "default")
        path = "/api/v1/namespaces/default/pods/g0/status"
        await until("the pod goes back", lambda: cluster.calls["PATCH", path])
        for item in (first, second):
            assert (await extender.filter(item, "n"))["NodeNames"] == ["n"]
        for item in (first, second):
            assert await extender.bind(item, "n") == (200, "")


def size_of(extender: Running) -> int:
    """The size of the group, as the extender has read it."""
    found = extender.state.find("default", "g0")
    return int(extender.state.gangs.gang_of(found.pod).size) if found else 0


async def test_an_api_server_without_pod_groups_is_not_listed(
    cluster: FakeApiServer, extender: Running
) -> None:
    """As before: the extender looked once, and works."""
    path = ("GET", "/apis/scheduling.k8s.io/v1beta1")
    await until("it has looked", lambda: cluster.calls[path])
    first, second, third = await prepare(cluster, extender, 3)
    for item in (first, second):
        assert (await extender.filter(item, "n"))["NodeNames"] == ["n"]
    assert (await extender.filter(third, "n"))["NodeNames"] == []
    assert not cluster.calls[LISTS]


async def test_explain_states_the_size_of_a_group(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Three pods and two GPUs: each pod would fit alone, and waits with its group."""
    cluster.pod_groups = True
    await cluster.put("podgroups", group(3))
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await prepare(cluster, extender, 3)
        await until("its size is read", lambda: size_of(extender) == 3)
        _, text = await extender.get("/api/v1/pods/default/g0/explain")
        assert "gang podgroup/g needs 3 x 8 GiB of GPU memory: capacity for 2 members" in text
        assert "but only with the pods of podgroup/g" in text


async def test_an_api_that_is_served_later_is_followed(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feature was switched on while the extender ran."""
    monkeypatch.setattr(informers, "SERVED_SECONDS", 0.01)
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await until(
            "it has looked", lambda: cluster.calls["GET", "/apis/scheduling.k8s.io/v1beta1"]
        )
        cluster.pod_groups = True
        await cluster.put("podgroups", group(2))
        await until("the groups are listed", lambda: cluster.calls[LISTS])


async def test_a_process_that_is_told_so_does_not_ask_for_pod_groups(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The webhook has no right to them, and each request would be refused and logged."""
    monkeypatch.setattr(informers, "SERVED_SECONDS", 0.01)
    cluster.pod_groups = True
    async with Running(cluster, tmp_path, pod_groups=False) as extender:
        await extender.ready()
        await cluster.put("nodes", node("n", 8, unit="GiB"))
        await extender.knows_node("n")
    assert not [path for _, path in cluster.calls if "scheduling.k8s.io" in path]
