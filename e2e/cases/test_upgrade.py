"""The chart comes, changes and goes: nobody's pod is disturbed, and nothing is left in the way."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from environments.case import Case
from environments.kind import GPU_MEM, NAMESPACE, RELEASE, KindEnvironment
from environments.table import inspect
from environments.waiting import DeadlineError, until

pytestmark = pytest.mark.e2e

KINDS = (
    "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,"
    "roles,rolebindings,configmaps,secrets,services,deployments,daemonsets,serviceaccounts,"
    "poddisruptionbudgets,networkpolicies"
)


@pytest.fixture
def restored(environment: KindEnvironment) -> Iterator[None]:
    """The stack is there and ready when the case ends, however it ends."""
    try:
        yield
    finally:
        environment.install()
        environment.wait_ready()


def lives(case: Case) -> dict[str, list[tuple[str, int]]]:
    """Container ids and restarts of every pod: what a disturbed pod cannot keep."""
    return {
        pod["metadata"]["name"]: [
            (state["containerID"], state["restartCount"])
            for state in pod["status"]["containerStatuses"]
        ]
        for pod in case.pods()
    }


def parts_of(environment: KindEnvironment) -> set[str]:
    """Identities of the pods that decide and hand out."""
    chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component in (scheduler,device-plugin)")
    return {pod["metadata"]["uid"] for pod in environment.kubectl.items("pods", *chosen)}


def owned(environment: KindEnvironment) -> list[str]:
    """Objects of the release, wherever they are; what controllers make of them does not count."""
    chosen = ("-A", "-l", f"app.kubernetes.io/instance={RELEASE}")
    found = environment.kubectl.items(KINDS, *chosen)
    return [f"{item['kind']} {item['metadata']['name']}" for item in found]


def changed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that replace every pod of the stack, and may stay."""
    mark = {"e2e": secrets.token_hex(3)}
    plugin = values["devicePlugin"]
    annotations = {**plugin["podAnnotations"], **mark}
    return {
        **values,
        "devicePlugin": {**plugin, "podAnnotations": annotations},
        "scheduler": {**values["scheduler"], "podAnnotations": mark},
    }


@pytest.mark.oldest
@pytest.mark.usefixtures("restored")
def test_an_upgrade_replaces_the_stack_and_no_pod_of_a_user(
    environment: KindEnvironment, case: Case, small: str, large: str
) -> None:
    """Every part of the stack is a new one; pods, their GPUs and the table are the old ones."""
    size = environment.nodes[small][0].units
    case.create_running(
        case.pod("left", size - 4, node=small),
        case.pod("right", size - 5, node=small),
        case.pod("large", 7, node=large),
    )
    until("all are confirmed", lambda: confirmed(case))
    before, table, parts = lives(case), inspect(environment), parts_of(environment)

    environment.install(changed(environment.values))
    environment.wait_ready()

    until("the old parts are gone", lambda: not parts & parts_of(environment))
    assert lives(case) == before
    until("the table is that of before", lambda: inspect(environment) == table)
    case.create_running(case.pod("four", 4, node=small), case.pod("five", 5, node=small))
    assert case.gpu("four") == case.gpu("left")
    assert case.gpu("five") == case.gpu("right")


@pytest.mark.usefixtures("restored")
def test_an_uninstall_leaves_nothing_in_the_way_and_an_install_finds_all_again(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """No object, finalizer or resource remains; a share's pod runs on and is counted again."""
    case.create_running(case.pod("share", 6, node=small))
    until("it is confirmed", lambda: confirmed(case))
    before, table = lives(case), inspect(environment, "-d")

    environment.uninstall()
    with suppress(DeadlineError):
        until("no object of the release", lambda: not owned(environment))
    assert owned(environment) == []
    until("no units are offered", lambda: units(environment, small) == 0)
    node = environment.objects.node(small)
    assert "finalizers" not in node["metadata"]
    assert "finalizers" not in case.get("share")["metadata"]
    assert not [taint for taint in node["spec"].get("taints", ()) if "gpu" in json.dumps(taint)]
    plain = case.pod("plain", 0, node=small)
    plain["spec"]["schedulerName"] = "default-scheduler"
    case.create_running(plain)
    case.delete("plain")
    assert lives(case) == before

    environment.install()
    environment.wait_ready()
    assert lives(case) == before
    until("the table is that of before", lambda: inspect(environment, "-d") == table)


def confirmed(case: Case) -> bool:
    """Every pod's grant is written down."""
    return all(
        pod["metadata"]["annotations"].get("ALIYUN_COM_GPU_MEM_ASSIGNED") == "true"
        for pod in case.pods()
    )


def units(environment: KindEnvironment, node: str) -> int:
    """What the node offers to schedulers."""
    status = environment.objects.node(node)["status"]
    return int(status["allocatable"].get(GPU_MEM, "0"))
