"""No right that is granted goes unused: what the roles say is held against the API server's log.

What the rest of the suite has used counts as well; whatever is left unused then is tried here, so
that this passes alone too.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pytest

from environments import audit, rights, secondrelease
from environments.case import Case
from environments.kind import NAMESPACE, RELEASE, KindEnvironment
from environments.rights import Right
from environments.waiting import DeadlineError, until

pytestmark = pytest.mark.e2e

PLUGIN = "-device-plugin"
EXTENDER = "gpushare-extender"
"""How the extender names itself, which in mode second shares kube-scheduler's account."""

UNTRIED = {
    ("", "events", "patch"): "an event is counted up where the same goes wrong again after 30 s",
    (
        "",
        "pods/status",
        "patch",
    ): "a pod is queued again where its scheduler saw free memory before the extender",
}
"""Rights that no case has the time to use, each with its reason."""

UNTRIED_ROLES = {
    "-extender-mix": "without a Lease the mix is written only once a scheduler called, and its"
    " history after five minutes where pods came",
}
"""Roles of which only the right to read is used in every run."""

OPTIONAL = {("scheduling.k8s.io", "podgroups")}
"""What a cluster serves only behind a feature gate: no right to it can be used where it is not."""

BIND = """
import http.client, json
call = http.client.HTTPConnection("127.0.0.1", 39999, timeout=10)
call.request("POST", "/gpushare-scheduler/bind", json.dumps({body!r}))
print(call.getresponse().status)
"""

GET_DASHBOARD = """
import http.client, ssl
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
trust = ssl.create_default_context(cafile="/etc/gpushare/dashboard/ca.crt")
call = http.client.HTTPSConnection("127.0.0.1", 8080, timeout=10, context=trust)
call.request("GET", "/", headers={"Authorization": f"Bearer {token}"})
print(call.getresponse().status)
"""


def bind(name: str, *, namespace: str, uid: str, node: str) -> str:
    """A program that calls the bind endpoint of its pod's extender, as a scheduler would."""
    body = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
    return BIND.format(body=body)


def usable(environment: KindEnvironment, granted: set[Right]) -> set[Right]:
    """Those to resources that this cluster serves; only optional ones may be missing."""
    served = set(environment.kubectl("api-resources", "-o", "name").split())
    missing = {each for each in OPTIONAL if f"{each[1]}.{each[0]}" not in served}
    return {right for right in granted if (right.group, right.resource) not in missing}


def unused(environment: KindEnvironment, granted: set[Right]) -> set[Right]:
    """Which of these rights nobody has used yet, but for those that may go unused."""
    used = audit.uses(environment.control_plane)
    return {
        right
        for right in granted
        if (right.group, right.resource, right.verb) not in UNTRIED
        and not (right.verb == "patch" and right.role.endswith(tuple(UNTRIED_ROLES)))
        and not any(right.used_by(use, agent=agent_of(right)) for use in used)
    }


def agent_of(right: Right) -> str:
    """The program that a role of the extender is meant for."""
    return EXTENDER if "-extender" in right.role and "scheduler" in right.account else ""


def assert_all_used(environment: KindEnvironment, granted: set[Right]) -> None:
    """The log shows every right within a moment; else the failure names those it does not show."""
    with suppress(DeadlineError):
        until("every right used", lambda: not unused(environment, granted))
    assert sorted(map(str, unused(environment, granted))) == []


@pytest.fixture
def mended(environment: KindEnvironment, small: str) -> Iterator[None]:
    """All GPUs of the small node are back when the case ends."""
    yield
    mend(environment, small)


def mend(environment: KindEnvironment, node: str) -> None:
    """Let both GPUs answer again, and wait until no source marks them unhealthy."""
    lines = [f"gpu {gpu} {state}" for gpu in (0, 1) for state in ("lost", "recovered")]
    environment.break_gpus(node, *lines)
    until("no GPU is listed", partial(listed, environment, node, ""))
    environment.wait_ready()


def lose_gpus(environment: KindEnvironment, node: str) -> None:
    """Have the list of unhealthy GPUs made, changed and taken away, which takes a minute."""
    for gpus in ("0", "0,1"):
        environment.break_gpus(node, *(f"gpu {gpu} lost" for gpu in gpus.split(",")))
        until(f"GPUs {gpus} are listed", partial(listed, environment, node, gpus))
    mend(environment, node)


def listed(environment: KindEnvironment, node: str, gpus: str) -> bool:
    """The original's ConfigMap of unhealthy GPUs names these; it is not there for none."""
    return sick(environment, node) == gpus


def sick(environment: KindEnvironment, node: str) -> str:
    """GPUs that the original's ConfigMap names."""
    where = ("-n", "kube-system", "--ignore-not-found", "-o", "jsonpath={.data.gpus}")
    return environment.kubectl("get", "configmap", f"unhealthy-gpu-{node}", *where)


@pytest.mark.usefixtures("mended")
def test_the_stack_uses_every_right_it_has(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """Binds, corrections and unhealthy GPUs by scheduler, extender and plugin: none is refused."""
    begun = datetime.now(UTC)
    granted = usable(environment, rights.granted(environment.kubectl, RELEASE))
    case.create_running(case.pod("share", 1, node=small))
    stray = case.pod("stray", 1)
    stray["spec"]["nodeName"] = small
    case.create_running(stray)
    extender = ("-n", NAMESPACE, f"deployment/{RELEASE}-scheduler", "-c", "extender", "--")
    stranger = bind("nobody", namespace=case.name, uid="none", node=small)
    environment.kubectl("exec", *extender, "python3", "-c", stranger)
    if any(right.resource == "configmaps" for right in unused(environment, granted)):
        lose_gpus(environment, small)
    page = ("-n", NAMESPACE, f"deployment/{RELEASE}-dashboard", "--")
    environment.kubectl("exec", *page, "python3", "-c", GET_DASHBOARD)
    assert_all_used(environment, granted)
    accounts = {right.account for right in granted}
    refused = audit.refusals(environment.control_plane, since=begun)
    assert [use for use in sorted(refused) if use.account in accounts] == []


def test_the_parts_that_are_not_there_by_default_use_every_right_they_have(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """The extender alone, whose bind endpoint is called from inside its pod, and the webhook.

    The plugin's rights are granted here too, and its pods are those of the stack.
    """
    values = {
        "scheduler": {**environment.values["scheduler"], "mode": "extender", "replicas": 1},
        "extender": {**environment.values["extender"], "tls": {"enabled": False}},
        "webhook": {"enabled": True, "replicas": 1},
    }
    waiting = case.pod("waiting", 1, node=small)
    waiting["spec"]["schedulerName"] = "nobody"
    case.kubectl.apply(waiting)
    with secondrelease.release(environment, "whole", values) as release:
        extender = ("-n", NAMESPACE, f"deployment/{release}-gpushare-extender", "--")
        uid = case.get("waiting")["metadata"]["uid"]

        def bound(name: str, uid: str) -> bool:
            """Bind the pod; whether it has a node then, which is nobody's who does not exist."""
            script = bind(name, namespace=case.name, uid=uid, node=small)
            environment.kubectl("exec", *extender, "python3", "-c", script)
            return bool(case.node("waiting"))

        bound("nobody", "none")
        until("the extender binds the pod", lambda: bound("waiting", uid))
        case.wait_running("waiting")
        granted = usable(environment, rights.granted(environment.kubectl, release))
    assert_all_used(environment, {each for each in granted if not each.account.endswith(PLUGIN)})


@pytest.mark.since("1.25")
def test_pod_security_forbids_the_pods_of_the_plugin_alone(environment: KindEnvironment) -> None:
    """A namespace that enforces the level restricted would admit all others of the release."""
    level = "pod-security.kubernetes.io/enforce=restricted"
    asked = ("label", "--dry-run=server", "--overwrite", "namespace", NAMESPACE, level)
    warned = environment.kubectl.attempt(*asked).stderr.splitlines()
    refused = [line.split()[1].rstrip(":") for line in warned if "existing pods" not in line]
    assert refused
    assert all(PLUGIN in name for name in refused)
