"""The histories of the device plugins: who is read, what a reply counts for, and what fails."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from admissioncalls import review, started, webhook
from certificates import make_certificate
from objects import Object, node
from running import until
from sizingside import OPT_IN, RELEASE, history, plugin, replica, replied

from gpucore.sizing.known_histories import KnownHistories
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpuextender import metrics
from gpuextender.settings import ExtenderSettings
from gpuextender.sizing import reader
from gpuextender.sizing.reader import WINDOW_SECONDS, HistoryReader
from gpukube.blocking import BlockingClient
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

KEY = WorkloadKey("team", "Deployment", "web", "c0")
WATCHED = ("namespaces", "resourcequotas", "limitranges")


def recent(*used: float, ago: float = 60.0) -> UsageHistory:
    """A history whose last sample is some seconds old."""
    return history(*used, last=time.time() - ago)


class Reading:
    """A reader of a fake API server."""

    def __init__(self, cluster: FakeApiServer, folder: Path) -> None:
        self.cluster, self.known = cluster, KnownHistories(900.0)
        config = cluster.write_kubeconfig(folder)
        self.reader = HistoryReader(
            self.known,
            lambda: BlockingClient.connect(config, user_agent="test", seconds=10),
            namespace=RELEASE,
            seconds=300.0,
        )

    async def plugin(self, name: str, node: str, reply: bytes | None, **more: Any) -> None:
        """A pod of a plugin, with its reply."""
        item = plugin(name, node, **more)
        await self.cluster.put("pods", item)
        if reply is not None:
            where = item["metadata"]["namespace"], f"https:{name}:9395", "usage-history"
            self.cluster.proxied[where] = reply

    async def read(self) -> tuple[list[int], bool]:
        """Read once; peaks of the workload in GiB, and whether no node is missing."""
        await self.reader.read_once()
        found, whole = self.known.of(KEY, time.monotonic())
        return [each.peak_bytes >> 30 for each in found], whole

    def proxied(self) -> list[str]:
        """Pods that were read."""
        return sorted(path.split("/")[6] for _, path in self.cluster.requests if "/proxy/" in path)


@pytest.fixture
def reading(cluster: FakeApiServer, tmp_path: Path) -> Reading:
    """A reader."""
    return Reading(cluster, tmp_path)


def decoded(response: Object) -> list[Object]:
    """The JSON patch of a review; empty where there is none."""
    found: list[Object] = json.loads(base64.b64decode(response.get("patch", "")) or b"[]")
    return found


def reads(result: str) -> float:
    """How many reads had this result so far."""
    name = "gpushare_extender_sizing_reads_total"
    return metrics.REGISTRY.get_sample_value(name, {"result": result}) or 0.0


async def test_the_plugins_of_all_nodes_are_read_and_added_up(reading: Reading) -> None:
    """Over the scheme of their metrics port; the highest peak counts."""
    before = reads("complete")
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    await reading.plugin("p-b", "b", replied("b", recent(5)))
    assert await reading.read() == ([5], True)
    assert reads("complete") == before + 1


async def test_a_tenants_pod_that_looks_like_a_plugin_is_not_read(reading: Reading) -> None:
    """Labels are text; only pods of the release's namespace are read."""
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    for each in "bc":  # more than there are plugins
        await reading.plugin(f"f-{each}", each, replied(each, recent(9)), namespace="tenant")
    assert await reading.read() == ([2], True)
    assert reading.proxied() == ["https:p-a:9395"]


async def test_a_plugin_that_speaks_for_another_node_counts_for_none(reading: Reading) -> None:
    """A node that was taken over changes nothing that others measured."""
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    await reading.plugin("p-b", "b", replied("a", recent(9)))
    assert await reading.read() == ([2], False)


@pytest.mark.parametrize(
    "reply", [None, b"", b"{}", b"[" * 100_000, b" " * (3 << 20), replied("b")[:-1]]
)
async def test_a_plugin_without_a_usable_reply_makes_the_read_incomplete(
    reading: Reading, reply: bytes | None
) -> None:
    """The others count; whoever asks learns that a node is missing."""
    before = reads("incomplete")
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    await reading.plugin("p-b", "b", reply)
    assert await reading.read() == ([2], False)
    assert reads("incomplete") == before + 1


@pytest.mark.parametrize("phase", ["Pending", "Failed", "Succeeded"])
async def test_a_plugin_whose_pod_does_not_run_makes_the_read_incomplete(
    reading: Reading, phase: str
) -> None:
    """The peak may have been on its node, so no pod is shrunk."""
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    await reading.plugin("p-b", "b", replied("b", recent(7)))
    assert await reading.read() == ([7], True)
    before = reads("incomplete")
    item = plugin("p-b", "b")
    item["status"]["phase"] = phase
    await reading.cluster.put("pods", item)
    assert await reading.read() == ([2, 7], True)  # the last read of all nodes counts for a day
    assert reads("incomplete") == before + 1


async def test_a_plugin_whose_pod_is_not_bound_yet_makes_the_read_incomplete(
    reading: Reading,
) -> None:
    """Its DaemonSet assigned it to its node by the name."""
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    item = plugin("p-b", "")
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    item["spec"]["affinity"] = {"nodeAffinity": required}
    item["status"]["phase"] = "Pending"
    await reading.cluster.put("pods", item)
    assert await reading.read() == ([2], False)


async def test_an_ended_pod_beside_a_running_plugin_is_no_failure(reading: Reading) -> None:
    """As after an eviction: the plugin of the node replies."""
    await reading.plugin("p-b", "a", replied("a", recent(2)))
    for name, phase in (("p-a", "Failed"), ("p-c", "Succeeded")):
        item = plugin(name, "a")
        item["status"]["phase"] = phase
        await reading.cluster.put("pods", item)
    assert await reading.read() == ([2], True)


async def test_without_any_plugin_nothing_is_certain(reading: Reading) -> None:
    """A wrong namespace would look the same."""
    before = reads("incomplete")
    assert await reading.read() == ([], False)
    assert reads("incomplete") == before + 1


async def test_a_node_counts_once_while_its_plugin_is_replaced(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both pods run for a moment, and may be read in different parts."""
    monkeypatch.setattr(reader, "PART", 1)
    for name in ("p-a", "p-b"):
        await reading.plugin(name, "a", replied("a", recent(2)))
    await reading.reader.read_once()
    ((found,), _) = reading.known.of(KEY, time.monotonic())
    assert found.pods == 3
    assert len(reading.proxied()) == 1


async def test_a_failed_list_keeps_what_is_known(reading: Reading) -> None:
    """Until it is too old."""
    await reading.plugin("p-a", "a", replied("a", recent(2)))
    assert await reading.read() == ([2], True)
    before = reads("failed")
    reading.cluster.fail["GET", f"/namespaces/{RELEASE}/pods"] = 403
    assert await reading.read() == ([2], True)
    assert reads("failed") == before + 1


async def test_a_workload_that_ended_long_ago_is_not_known(reading: Reading) -> None:
    """Its next version may need another size."""
    await reading.plugin("p-a", "a", replied("a", recent(2, ago=WINDOW_SECONDS + 60)))
    assert await reading.read() == ([], False)


async def test_nothing_is_read_where_it_is_not_enabled(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """By default: no namespace, no quota, no plugin, and no pod changes."""
    make_certificate(tmp_path / "certificates", "one")
    await cluster.put("nodes", node("n", 16, unit="GiB"))
    await cluster.put("namespaces", {"metadata": {"name": "team", "annotations": OPT_IN}})
    await cluster.put("pods", plugin("p-a", "n"))
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        response = await review(extender, replica(annotations=OPT_IN), "team")
    assert "gpu-mem" not in str(decoded(response))
    assert not [path for _, path in cluster.requests if "/proxy/" in path]
    assert [cluster.lists(each) for each in WATCHED] == [0, 0, 0]


async def test_where_it_is_enabled_a_pod_gets_what_its_workload_used(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The whole way: plugins, namespaces, and the review of a pod over TLS."""
    make_certificate(tmp_path / "certificates", "one")
    await cluster.put("nodes", node("n", 16, unit="GiB"))
    await cluster.put("namespaces", {"metadata": {"name": "team", "annotations": OPT_IN}})
    await cluster.put("namespaces", {"metadata": {"name": "other"}})
    await cluster.put("pods", plugin("p-a", "n"))
    where = RELEASE, "https:p-a:9395", "usage-history"
    both = [recent(2, 3), history(2, 3, namespace="other", last=time.time())]
    cluster.proxied[where] = replied("n", *both)
    enabled = {"kubeconfig": tmp_path / "kubeconfig", "sizing_namespace": RELEASE}
    async with webhook(cluster, tmp_path, sizing=True, **enabled) as extender:
        await started(extender)
        sizer = extender.service._webhook._sizing._sizer
        await until("the histories are read", lambda: sizer._known.of(KEY, time.monotonic())[1])
        await until("the namespaces are listed", sizer._namespaces.known)
        response = await review(extender, replica(), "team")
        assert decoded(response)[0]["value"] == "4"
        other = await review(extender, replica(), "other")
        assert "gpu-mem" not in str(decoded(other))


def test_the_namespace_of_the_plugins_is_required() -> None:
    """Without it pods of tenants would be read."""
    with pytest.raises(ValueError, match="sizing needs sizing-namespace"):
        ExtenderSettings(sizing=True)
    assert ExtenderSettings().sizing is False
