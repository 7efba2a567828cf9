"""The webhook's account and the ResourceClaimTemplates of tenants, judged by a real API server."""

import asyncio
from typing import Any, Final

import msgspec
import pytest
from chartconfig import SPACE, chart_config
from planes import plane

from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from gpucore.claims.share_template import ShareRequest, ShareTemplate, template_object

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
__all__ = ["plane"]  # a fixture

TEMPLATES: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
REFUSED: Final = "only ResourceClaimTemplates with the label"
OWN: Final = template_object(ShareTemplate((ShareRequest(1024, 0),), 1), "default", "gpushare")
SECONDS: Final = 60
Object = dict[str, Any]


async def as_webhook(calls: ApiCalls, verb: str, path: str, item: Object | None = None) -> str:
    """The message of a refusal to the webhook's account; empty where the request passes."""
    headers = {"Impersonate-User": f"system:serviceaccount:{SPACE}:{SPACE}-gpushare-webhook"}
    async with calls.session.request(verb, path, json=item, headers=headers) as answer:
        found: Object = msgspec.json.decode(await answer.read())
        assert answer.status in {200, 201, 403}, found
        return "" if answer.status != 403 else str(found["message"])


async def test_the_webhook_reaches_its_own_templates_only(plane: ControlPlane) -> None:
    """Creation and deletion; a tenant's template stays."""
    async with ApiCalls.to(plane) as calls:
        foreign = {**OWN, "metadata": {"name": "mine"}}
        await calls.create(TEMPLATES, [foreign])
        chosen = {"claims": {"enabled": True}, "webhook": {"claims": "namespaces"}}
        await chart_config(plane, calls, admissionPolicy={"enabled": True}, **chosen)

        dry = f"{TEMPLATES}?dryRun=All"
        probe = {**foreign, "metadata": {"name": "probe"}}
        async with asyncio.timeout(SECONDS):
            while REFUSED not in await as_webhook(calls, "POST", dry, probe):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        assert REFUSED in await as_webhook(calls, "DELETE", f"{TEMPLATES}/mine")
        assert await as_webhook(calls, "POST", TEMPLATES, OWN) == ""
        assert await as_webhook(calls, "DELETE", f"{TEMPLATES}/{OWN['metadata']['name']}") == ""
        await calls.call("DELETE", f"{TEMPLATES}/mine")
