"""New pods get the GPU memory that their workload was measured to need, where two people agree.

``make e2e MARK=ondemand CASES=e2e/cases/test_sizing.py`` runs it.
"""

import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from environments.case import Case
from environments.kind import GPU_MEM, KindEnvironment
from environments.waiting import until
from environments.workloads import Object
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

FOLDER = "/var/lib/kubelet/plugins/gpushare-usage"
GIB = 1 << 30
DAY = 86_400
TRIES = 8
"""Admissions in a row that must agree: each of the two webhooks reads for itself."""


@pytest.fixture
def restored(environment: KindEnvironment) -> Iterator[None]:
    """The stack has its own values again, and no history, when the case ends."""
    values = environment.values
    try:
        yield
    finally:
        environment.install(values)
        environment.wait_ready()


def measured(namespace: str, name: str) -> UsageHistory:
    """A Deployment that requests 8 GiB and has used 2 for eight days."""
    found = UsageHistory(WorkloadKey(namespace, "Deployment", name, "c0"), pods=3, starts=12)
    now = time.time()
    for _ in range(100):
        found.record(now, 2 * GIB, requested_bytes=8 * GIB)
    found.first_seen = found.faded_at = now - 6 * DAY
    return found


def with_histories(environment: KindEnvironment, *histories: UsageHistory) -> None:
    """Replace the histories of the nodes while no plugin records; then the webhook reads them."""
    values = environment.values
    plugin, webhook = values["devicePlugin"], values.get("webhook", {})
    environment.install({**values, "devicePlugin": {**plugin, "record": {"enabled": False}}})
    environment.wait_ready()
    for node in environment.nodes:
        raw = shlex.quote(encode_histories(node, histories).decode())
        environment.on_node(
            node,
            f"umask 077; mkdir -p {FOLDER}; chmod 700 {FOLDER};"
            f" printf %s {raw} > {FOLDER}/usage-history.json",
        )
    sizing = {"enabled": True, "intervalSeconds": 10}
    environment.install({**values, "webhook": {**webhook, "sizing": sizing}})
    environment.wait_ready()


def admitted(case: Case, name: str, **annotations: str) -> Object:
    """A pod of the Deployment as the API server would create it."""
    pod = case.pod(f"{name}-1", 8)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-7f8d", "uid": "u"}
    pod["metadata"] |= {"ownerReferences": [{**owner, "controller": True}]}
    pod["metadata"].setdefault("labels", {})["pod-template-hash"] = "7f8d"
    pod["metadata"].setdefault("annotations", {}).update(annotations)
    flags = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    found: dict[str, Any] = json.loads(case.kubectl(*flags, stdin=json.dumps(pod)))
    return found


def units(pod: Object) -> tuple[str, str]:
    """Requested and allowed, which of an extended resource are one."""
    resources = pod["spec"]["containers"][0]["resources"]
    return resources["requests"][GPU_MEM], resources["limits"][GPU_MEM]


@pytest.mark.usefixtures("restored")
def test_new_pods_of_an_owner_who_opted_in_get_the_measured_size(
    environment: KindEnvironment, case: Case, large: str
) -> None:
    """2 GiB and 15 percent are 3 units; without the annotation, and with exact, 8 stay 8."""
    with_histories(environment, measured(case.name, "web"))
    assert units(admitted(case, "web")) == ("8", "8")
    case.kubectl("annotate", "namespace", case.name, "gpushare/sizing=initial")
    until(
        "both webhooks know the histories",
        lambda: all(units(admitted(case, "web")) == ("3", "3") for _ in range(TRIES)),
    )
    assert units(admitted(case, "web", **{"gpushare/sizing-exact": "true"})) == ("8", "8")
    assert units(admitted(case, "api")) == ("8", "8")
    case.kubectl.apply(case.deployment("web", 8, replicas=2, node=large))
    until("both run", lambda: len(case.running("web")) == 2)
    for name in case.running("web"):
        pod = case.get(name)
        assert units(pod) == ("3", "3")
        assert pod["metadata"]["annotations"]["gpushare/original-memory"] == "8"
