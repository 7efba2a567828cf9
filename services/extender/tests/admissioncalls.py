"""A webhook that listens, and what the API server sends to it."""

import json
from pathlib import Path
from typing import Any

import aiohttp
from running import Running, until

from gpukube.testing.apiserver import FakeApiServer

Object = dict[str, Any]


class Known:
    """An informer that has just heard of everything."""

    name = "nodes"
    confirmed = True
    age = 0.0

    async def wait_for_confirmation(self) -> None:
        raise AssertionError("the webhook waits for nothing")


def webhook(cluster: FakeApiServer, folder: Path, **settings: Any) -> Running:
    """An extender with its webhook on."""
    return Running(
        cluster,
        folder,
        webhook_port=0,
        webhook_certificates=folder / "certificates",
        certificates_reload=0.02,
        **settings,
    )


async def review(
    extender: Running, item: object, namespace: str = "default", sub_resource: str = ""
) -> Object:
    """Send a pod for admission as the API server would; answers the response."""
    server = extender.service.listeners.admission
    request = {"uid": "r1", "namespace": namespace, "operation": "CREATE", "object": item}
    if sub_resource:
        request["subResource"] = sub_resource
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request,
    }
    url = f"https://127.0.0.1:{server.port}/admit"
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, data=json.dumps(body), ssl=False) as reply,
    ):
        assert reply.status == 200
        answer = await reply.json()
    assert (answer["kind"], answer["response"]["uid"]) == ("AdmissionReview", "r1")
    response: Object = answer["response"]
    return response


async def started(extender: Running) -> None:
    """Wait until the webhook listens."""
    await extender.ready()
    await until("the webhook listens", lambda: extender.service.listeners.admission.started)
