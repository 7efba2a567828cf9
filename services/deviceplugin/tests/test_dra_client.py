"""Claims are read with the client of the services, over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from fakedra.claims import FakeClaims, cdi_claims, holding, node

from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpukube.client import HttpKubeClient
from gpukube.errors import NotFoundError
from gpukube.testing.apiserver import FakeApiServer


class ClaimServer:
    """An API server that has claims and nothing else.

    Attributes:
        status: of every reply while it is not 200.
    """

    def __init__(self) -> None:
        self.claims = FakeClaims()
        self.status = 200

    async def reply(self, request: web.Request) -> web.Response:
        """A claim, or a Status."""
        body = self.claims.objects.get(request.path)
        if self.status == 200 and body is not None:
            return web.Response(body=body, content_type="application/json")
        code = 404 if self.status == 200 else self.status
        failure = {"kind": "Status", "code": code, "message": "no claim"}
        return web.Response(status=code, text=json.dumps(failure), content_type="application/json")


@pytest.fixture
async def server() -> AsyncIterator[tuple[ClaimServer, str]]:
    """A server, and where it listens."""
    made = ClaimServer()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.reply)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield made, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_claim_is_prepared_from_the_api_servers_reply(
    tmp_path: Path, server: tuple[ClaimServer, str]
) -> None:
    """A server that fails leaves the checkpoint to answer; a claim that is gone does not."""
    api, url = server
    api.claims.add("u-1", 1)
    cluster = FakeApiServer()
    cluster.url = url
    kubeconfig = cluster.write_kubeconfig(tmp_path)
    async with await HttpKubeClient.connect(kubeconfig, user_agent="test") as kube:
        files = ClaimFiles(tmp_path / "gpu", tmp_path / "cdi")
        files.start()
        preparer = ClaimPreparer(kube, files, node, holder=holding())
        first = await preparer.prepare("team", "c-u-1", "u-1")
        assert [each.uuid for each in first.devices] == ["GPU-1"]
        api.status = 503
        assert await preparer.prepare("team", "c-u-1", "u-1") == first
        await preparer.remove_deleted()
        assert cdi_claims(tmp_path / "cdi") == {"u-1"}
        api.status = 200
        with pytest.raises(NotFoundError, match="no claim"):
            await preparer.prepare("team", "c-u-2", "u-2")
        api.claims.remove("u-1")
        await preparer.remove_deleted()
        assert cdi_claims(tmp_path / "cdi") == set()
