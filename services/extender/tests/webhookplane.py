"""The chart at a real API server, with extender and webhook as processes of the test."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from planes import Source
from running import Running

from environments import helm
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane
from gpukube.issuing.__main__ import main as issuing

Object = dict[str, Any]
CHART = Path(__file__).parents[3] / "helm" / "gpushare"
RELEASE, SPACE, WEBHOOK = "gpushare", "gpushare", "gpushare-webhook"
PODS = "/api/v1/namespaces/default/pods"
SECRET = f"/api/v1/namespaces/{SPACE}/secrets/{WEBHOOK}"
JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
SERVICE = f"/api/v1/namespaces/{SPACE}/services/{WEBHOOK}"
HOOK = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK}"


def install(plane: ControlPlane) -> None:
    """The chart with nothing set but what it demands, and who plays the parts that are not here."""
    players = {"admissionPolicy": {"exemptUsers": ["admin"]}}
    values = {"image": {"registry": "local"}, **players}
    helm.install(RELEASE, CHART, SPACE, values, plane.kubeconfig)


@contextmanager
def chart_plane() -> Iterator[ControlPlane]:
    """A control plane with the chart."""
    with control_plane() as one:
        install(one)
        yield one


@asynccontextmanager
async def webhook_stack(
    plane: ControlPlane, calls: ApiCalls, folder: Path, **settings: Any
) -> AsyncIterator[Running]:
    """Extender and webhook, each as in a process of its own, with the chart's certificate."""
    assert await issue(plane, calls) == 0
    certificates = folder / "certificates"
    certificates.mkdir()
    for name, text in (await get(calls, SECRET))["data"].items():
        (certificates / name).write_bytes(base64.b64decode(text))
    given = {"webhook_port": 0, "webhook_certificates": certificates, "webhook_only": True}
    async with AsyncExitStack() as ends:
        running = await ends.enter_async_context(Running(Source(plane), folder, **settings))
        webhook = await ends.enter_async_context(
            Running(Source(plane), folder, **given, **settings)
        )
        await running.ready()
        await webhook.ready()
        await lead_to(calls, webhook.service.listeners.admission.port)
        yield running


async def issue(plane: ControlPlane, calls: ApiCalls) -> int:
    """Run the command of the chart's Job, which no controller starts here; its exit status."""
    (job,) = (await get(calls, JOBS))["items"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments = [*container["args"], f"--kubeconfig={plane.kubeconfig}"]
    return await asyncio.to_thread(issuing, arguments)


async def lead_to(calls: ApiCalls, port: int) -> None:
    """Let the Service, behind which no pods are, lead to a port of this machine."""
    outside = {"type": "ExternalName", "externalName": "localhost", "clusterIP": None}
    await calls.call("PATCH", SERVICE, {"spec": outside}, kind=MERGE_PATCH)
    configuration = await get(calls, HOOK)
    configuration["webhooks"][0]["clientConfig"]["service"]["port"] = port
    await calls.call("PUT", HOOK, configuration)


async def get(calls: ApiCalls, path: str) -> Object:
    """An object as it is."""
    found: Object = msgspec.json.decode(await calls.call("GET", path))
    return found
