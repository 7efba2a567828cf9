"""Model servers that start on one GPU one after the other, by the annotation of their pods."""

from collections.abc import Iterator

import pytest

from environments.case import Case
from environments.drivermode import plugins_run
from environments.kind import KindEnvironment
from environments.podresources import plugin_pod
from environments.waiting import until
from environments.workloads import Object

pytestmark = pytest.mark.e2e

WAITS = "waits for its turn"


@pytest.fixture(scope="module")
def turns(environment: KindEnvironment) -> Iterator[None]:
    """The stack with turns; without them again afterwards."""
    usual = environment.values
    plugin = {**usual["devicePlugin"], "startTurns": True}
    try:
        environment.install({**usual, "devicePlugin": plugin})
        plugins_run(environment)
        environment.wait_ready()
        yield
    finally:
        environment.install(usual)
        environment.wait_ready()


def server(case: Case, name: str, node: str, *, seconds: int = 600) -> Object:
    """A pod that is ready once a file exists, on the GPU that a packed node fills first."""
    pod = case.pod(name, 2, node=node)
    notes = {"gpushare/start-turn": str(seconds), "gpushare/policy": "binpack"}
    pod["metadata"]["annotations"] = notes
    (container,) = pod["spec"]["containers"]
    container["command"] = ["sh", "-c", "sleep 3600"]
    container["readinessProbe"] = {
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1,
    }
    return pod


def runs(case: Case, name: str) -> bool:
    """Whether the container of the pod has been started."""
    states = case.get(name)["status"].get("containerStatuses", ())
    return any("running" in state["state"] for state in states)


def why_waiting(case: Case, name: str) -> str:
    """The message of the container that waits; empty where none does."""
    states = case.get(name)["status"].get("containerStatuses", ())
    found = [state["state"].get("waiting", {}).get("message", "") for state in states]
    return " ".join(found)


def become_ready(case: Case, name: str) -> None:
    """The model is loaded."""
    case.kubectl("exec", name, "-n", case.name, "--", "touch", "/tmp/ready")


@pytest.mark.usefixtures("turns")
def test_the_second_server_on_a_gpu_starts_once_the_first_is_ready(case: Case, small: str) -> None:
    """Meanwhile its pod names the pod whose turn it is; both are on one GPU."""
    case.kubectl.apply(server(case, "first", small))
    until("the first one starts", lambda: runs(case, "first"))
    case.kubectl.apply(server(case, "second", small))
    until("the second one waits", lambda: WAITS in why_waiting(case, "second"))
    assert f"pod {case.name}/first is starting on the same GPU" in why_waiting(case, "second")
    assert not runs(case, "second")
    become_ready(case, "first")
    until("the second one starts", lambda: runs(case, "second"))
    become_ready(case, "second")
    case.wait_running("first", "second")
    assert case.gpu("first") == case.gpu("second")


@pytest.mark.ondemand
@pytest.mark.usefixtures("turns")
def test_a_server_that_ends_gives_its_turn_up(case: Case, small: str) -> None:
    """A pod that is deleted before it was ready holds nobody up; its seconds need not pass."""
    case.kubectl.apply(server(case, "stuck", small))
    until("the stuck one starts", lambda: runs(case, "stuck"))
    case.kubectl.apply(server(case, "next", small))
    until("the next one waits", lambda: WAITS in why_waiting(case, "next"))
    case.kubectl("delete", "pod", "stuck", "-n", case.name, "--grace-period=0", "--force")
    until("the next one starts", lambda: runs(case, "next"))


@pytest.mark.usefixtures("turns")
def test_a_turn_survives_the_plugin_and_ends_as_any_other(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """A plugin that was killed lets no server start beside one that is still starting."""
    case.kubectl.apply(server(case, "slow", small))
    until("the slow one starts", lambda: runs(case, "slow"))
    plugin = plugin_pod(environment, small)
    environment.kubectl("delete", "pod", plugin, "-n", environment.namespace, "--force")
    plugins_run(environment)
    case.kubectl.apply(server(case, "after", small))
    until("the other one waits", lambda: WAITS in why_waiting(case, "after"))
    assert f"pod {case.name}/slow is starting on the same GPU" in why_waiting(case, "after")
    become_ready(case, "slow")
    until("the other one starts", lambda: runs(case, "after"))
