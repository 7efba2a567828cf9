"""Extender and webhook with the rights that the chart gives them, in each mode: none is missing."""

import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from charting import NAMESPACE, Rendered, render
from chartrights import Authorizer, ChartRight, rights_of
from objects import node, pod
from pydantic_settings import CliApp
from running import Object, Running, until
from sizingside import plugin

from gpucore.claims.share_template import ShareRequest, ShareTemplate, encode_contents
from gpucore.wire.names import CLAIM_TEMPLATE
from gpuextender import mixpublisher
from gpuextender.claims import templates
from gpuextender.scheduling import requeue
from gpuextender.settings import ExtenderSettings
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

LISTENERS: Final = {
    "host",
    "port",
    "metrics_host",
    "metrics_port",
    "metrics_certificates",
    "tls_certificates",
    "tls_client_ca",
    "tls_client_names",
    "webhook_port",
    "webhook_certificates",
    "bind_deadline",
    "drain_seconds",
    "kubeconfig",
}
"""Settings without effect on what is requested of the API server."""
EVENTS: Final = ("patch", "", "events")
MIX_PATCH: Final = ("patch", "", "configmaps")
"""Written for an event that repeats after half a minute, and for a mix after many pods."""
OWN_LEASE: Final = {(verb, "coordination.k8s.io", "leases") for verb in ("create", "get", "update")}
"""Of kube-scheduler, which has the same account."""
SIZE_EVENT: Final = ("create", "", "events")
"""Once a day for each workload."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are what production has, scaled down."""
    monkeypatch.setattr(requeue, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(requeue, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(mixpublisher, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(templates, "SWEEP_SECONDS", 0.05)


def settings_of(rendered: Rendered, component: str, box: str) -> dict[str, Any]:
    """The settings of a container of the chart, but for its listeners."""
    containers = dict(rendered.pods())[component]["containers"]
    (args,) = (each["args"] for each in containers if each["name"] == box)
    asked = [arg for arg in args if not arg.startswith(("--tls", "--webhook-c", "--metrics-c"))]
    found = CliApp.run(ExtenderSettings, cli_args=[a for a in asked if "topology-config" not in a])
    return found.model_dump(exclude=LISTENERS, exclude_unset=True)


def lease() -> Object:
    """The Lease of a scheduler in this pod."""
    spec = {
        "holderIdentity": f"{socket.gethostname()}_1",
        "leaseDurationSeconds": 3600,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    name = {"name": "gpushare-scheduler", "namespace": NAMESPACE}
    return {"kind": "Lease", "metadata": name, "spec": spec}


def kinds(rights: Sequence[ChartRight]) -> set[tuple[str, str, str]]:
    """Without namespaces and names."""
    return {(each.verb, each.group, each.resource) for each in rights}


async def place_pods(cluster: FakeApiServer, running: Running) -> None:
    """A pod that is bound, one that is refused until there is room, and a question about it."""
    await running.ready()
    await cluster.put("nodes", node("n1", 16))
    await running.knows_node("n1")
    first, second = pod("first", 16), pod("second", 16)
    for item in (first, second):
        await cluster.put("pods", item)
        name = item["metadata"]["name"]
        await until(name, lambda name=name: running.state.find("default", name))  # type: ignore[misc]
    await running.filter(first, "n1")
    assert await running.bind(first, "n1") == (200, "")
    await until("the pod is bound", lambda: cluster.bindings)
    uid = first["metadata"]["uid"]
    await running.knows_pod(uid)
    assert (await running.filter(second, "n1"))["NodeNames"] == []
    await cluster.delete("pods", "first", "default")
    sent = "/namespaces/default/pods/second/status"
    await until("it is sent back", lambda: cluster.count("PATCH", sent))
    assert (await running.get("/api/v1/pods/default/second/explain"))[0] == 200
    await until("the event", lambda: cluster.count("POST", "/events"))


@pytest.mark.parametrize("mode", ["second", "extender"])
@pytest.mark.parametrize(("more", "nominate"), [(False, "off"), (True, "off"), (True, "refused")])
async def test_the_extender_has_the_rights_that_it_uses(
    cluster: FakeApiServer, tmp_path: Path, mode: str, nominate: str, *, more: bool
) -> None:
    """With and without claims, ConfigMaps of unhealthy GPUs and the history of the mix."""
    values: Object = {
        "scheduler": {"mode": mode},
        "unhealthyConfigMaps": more,
        "extender": {"claims": more, "mixHistory": more, "nominate": nominate},
    }
    chart = render("1.37.0", values)
    component = "scheduler" if mode == "second" else "extender"
    authorizer = Authorizer(rights_of(chart, f"gpushare-{component}"))
    cluster.permits, cluster.pod_groups = authorizer.permits, True
    await cluster.put("leases", lease())
    mix = {"name": "gpushare-extender-mix", "namespace": NAMESPACE}
    await cluster.put("configmaps", {"metadata": mix})
    await cluster.put("podgroups", {"metadata": {"name": "g", "namespace": "default"}, "spec": {}})
    async with Running(cluster, tmp_path, **settings_of(chart, component, "extender")) as running:
        await until("PodGroups are followed", lambda: cluster.watching("podgroups"))
        await place_pods(cluster, running)
        if more:
            kind = "resourceclaims" if nominate == "off" else "deviceclasses"
            await until("claims are followed", lambda: cluster.watching(kind))
            await until("ConfigMaps are followed", lambda: cluster.watching("configmaps"))
    assert authorizer.refused == set()
    allowed = {EVENTS} | ({MIX_PATCH} if more else set())
    allowed |= OWN_LEASE if mode == "second" else set()
    assert kinds(list(authorizer.unused)) <= allowed


@pytest.mark.parametrize("more", [False, True])
async def test_the_webhook_has_the_rights_that_it_uses(
    cluster: FakeApiServer, tmp_path: Path, *, more: bool
) -> None:
    """With and without sizes at creation and pods that are converted to claims."""
    webhook = {"claims": "all" if more else "off", "sizing": {"enabled": more}}
    values = {"webhook": webhook, "claims": {"enabled": more}, "unhealthyConfigMaps": more}
    chart = render("1.37.0", values)
    authorizer = Authorizer(rights_of(chart, "gpushare-webhook"))
    cluster.permits = authorizer.permits
    contents = ShareTemplate((ShareRequest(8192),))
    wanting = pod("wanting", 8)
    wanting["metadata"]["annotations"] = {CLAIM_TEMPLATE: encode_contents(contents)}
    await cluster.put("pods", wanting)
    await cluster.put("pods", plugin("plugin-n1", "n1", namespace=NAMESPACE))
    settings = settings_of(chart, "webhook", "webhook") | {"kubeconfig": tmp_path / "kubeconfig"}
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    async with Running(cluster, tmp_path, metrics_port=0, webhook_port=0, **settings) as running:
        await until("the cluster is read", lambda: running.service.health.loaded)
        if more:
            made = cluster.stores["resourceclaimtemplates"].objects
            await until("the template is created", lambda: made)
            await cluster.delete("pods", "wanting", "default")
            await until("the template is deleted", lambda: not made)
            await until("quotas are followed", lambda: cluster.watching("resourcequotas"))
            await until("a history is read", lambda: cluster.count("GET", "/usage-history"))
            await until("ConfigMaps are followed", lambda: cluster.watching("configmaps"))
    assert authorizer.refused == set()
    assert kinds(list(authorizer.unused)) <= ({SIZE_EVENT} if more else set())
