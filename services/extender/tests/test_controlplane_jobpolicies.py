"""The accounts of the chart's jobs for certificates and verify, judged by a real API server."""

import asyncio
import copy
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from chartconfig import SPACE, chart_config
from planes import plane

from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from gpukube.issuing.authority import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
PODS: Final = f"/api/v1/namespaces/{SPACE}/pods"
JOBS: Final = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
CONFIGURATION: Final = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{SPACE}-gpushare-webhook"
)
LABELS: Final = {"app.kubernetes.io/managed-by": "gpushare-verify"}
CONTAINER: Final = {
    "name": "probe",
    "image": "i",
    "env": [{"name": "A", "value": "b"}],
    "securityContext": {"allowPrivilegeEscalation": False},
}
SPEC: Final = {
    "containers": [CONTAINER],
    "volumes": [{"name": "exchange", "emptyDir": {}}],
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
}
CHOICES: Final[tuple[Object, ...]] = (
    {"clientConfig": {"url": "https://192.0.2.1"}},
    {"matchConditions": []},
    {"objectSelector": {"matchLabels": {"a": "b"}}},
)
"""What a stolen token of the certificates' Job would change of a webhook."""
SECONDS: Final = 60


def pod(name: str, labels: Object = LABELS, **spec: object) -> Object:
    """A pod as verify creates it."""
    return {"metadata": {"name": name, "labels": labels}, "spec": SPEC | spec}


def job(name: str, **spec: object) -> Object:
    """The guard of a run of verify."""
    template = {"metadata": {"labels": LABELS}, "spec": SPEC | spec}
    return {"metadata": {"name": name, "labels": LABELS}, "spec": {"template": template}}


async def refusal(
    calls: ApiCalls, account: str, verb: str, path: str, item: Object | None = None
) -> str:
    """The message of a refusal to this account of the chart; empty where the request passes."""
    kind = MERGE_PATCH if verb == "PATCH" else "application/json"
    user = f"system:serviceaccount:{SPACE}:{SPACE}-gpushare-{account}"
    headers = {"Impersonate-User": user, "Content-Type": kind}
    data = None if item is None else msgspec.json.encode(item)
    async with calls.session.request(verb, path, data=data, headers=headers) as answer:
        found: Object = msgspec.json.decode(await answer.read())
        assert answer.status in {200, 201, 403}, found
        return "" if answer.status != 403 else str(found["message"])


async def in_force(refused: Callable[[], Awaitable[str]], sentence: str) -> None:
    """Wait until the API server applies the policy."""
    async with asyncio.timeout(SECONDS):
        while sentence not in await refused():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def test_the_accounts_of_jobs_write_what_these_write_and_nothing_else(
    plane: ControlPlane,
) -> None:
    """Of the webhooks the bundles; pods and jobs of verify, and one annotation of others."""
    async with ApiCalls.to(plane) as calls:
        await chart_config(
            plane,
            calls,
            admissionPolicy={"enabled": True},
            webhook={"enabled": True},
            verify={"schedule": "17 4 * * *"},
        )
        await of_certificates(calls)
        await of_verify(calls)


async def of_certificates(calls: ApiCalls) -> None:
    """The bundle as the Job sets it, and what a stolen token would rather change."""
    found: Object = msgspec.json.decode(await calls.call("GET", CONFIGURATION))

    async def changed(**fields: object) -> str:
        webhooks = copy.deepcopy(found["webhooks"])
        webhooks[0] |= fields
        return await refusal(
            calls, "certificates", "PATCH", f"{CONFIGURATION}?dryRun=All", {"webhooks": webhooks}
        )

    everything = [{**found["webhooks"][0]["rules"][0], "resources": ["*"]}]
    await in_force(lambda: changed(rules=everything), "nothing but caBundle")
    for fields in CHOICES:
        assert "nothing but caBundle" in await changed(**fields)
    owned = {"metadata": {"finalizers": ["evil/stay"]}}
    assert "of the metadata" in await refusal(calls, "certificates", "PATCH", CONFIGURATION, owned)

    bundle = b64encode(Authority.create("ca", datetime.now(UTC)).pair.certificate).decode()
    webhooks = copy.deepcopy(found["webhooks"])
    webhooks[0]["clientConfig"]["caBundle"] = bundle
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    body = {"metadata": version, "webhooks": webhooks}
    assert await refusal(calls, "certificates", "PATCH", CONFIGURATION, body) == ""
    stored: Object = msgspec.json.decode(await calls.call("GET", CONFIGURATION))
    assert stored["webhooks"][0]["clientConfig"]["caBundle"] == bundle


async def of_verify(calls: ApiCalls) -> None:
    """Its own pods and jobs, without other rights; the annotation of a pod of the stack."""
    labels = {"app.kubernetes.io/name": "gpushare"}
    await calls.call("POST", PODS, pod("plugin", labels))
    dry = "?dryRun=All"

    async def asked(verb: str, path: str, item: Object | None = None) -> str:
        return await refusal(calls, "verify", verb, path, item)

    own, rights = "with the label", "without another account"
    await in_force(lambda: asked("POST", PODS + dry, pod("probe", labels)), own)
    assert own in await asked("DELETE", f"{PODS}/plugin")
    secret = {"volumes": [{"name": "a", "secret": {"secretName": "s"}}]}
    unconfined = {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}
    for spec in (
        secret,
        unconfined,
        {"securityContext": {}},
        {"hostPID": True},
        {"nodeName": "n"},
        {"priorityClassName": "system-node-critical"},
        {"serviceAccountName": f"{SPACE}-gpushare-scheduler"},
    ):
        assert rights in await asked("POST", PODS + dry, pod("probe", **spec))
        assert rights in await asked("POST", JOBS + dry, job("probe", **spec))
    for path, item in ((PODS, pod("check")), (JOBS, job("guard"))):
        assert await asked("POST", path, item) == ""
        assert await asked("DELETE", f"{path}/{item['metadata']['name']}") == ""

    annotation = {"metadata": {"annotations": {"gpushare/verified": "x"}}}
    label = {"metadata": {"labels": {"gpushare/verified": "x"}}}
    await in_force(lambda: asked("PATCH", f"{PODS}/plugin", label), "nothing of a pod but")
    assert await asked("PATCH", f"{PODS}/plugin", annotation) == ""
    image = {"spec": {"containers": [{**CONTAINER, "image": "evil"}]}}
    assert "nothing of a pod but" in await asked("PATCH", f"{PODS}/plugin", image)
