"""Idle shares: which pods ``gpushare idle`` lists, and which of them it evicts after a notice."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from environments.case import Case
from environments.kind import KindEnvironment
from environments.podprocesses import first_pid
from environments.podresources import plugin_pod
from environments.waiting import PATIENCE_SECONDS, until
from environments.workloads import Object

pytestmark = pytest.mark.e2e

COMMAND: Final = Path(__file__).parents[2] / "services/inspect/tests/hoursofseconds.py"
"""The command, whose hours are seconds: the clock of the device plugin cannot be moved."""
GRACE: Final = 4
"""Seconds from the notice to the eviction."""
ALLOWED: Final = {"gpushare/idle-allowed": "true"}


@pytest.fixture
def unused(environment: KindEnvironment, small: str) -> Iterator[str]:
    """The small node, of whose mock GPUs no process has memory when the case ends."""
    yield small
    environment.break_gpus(small)


def idle(case: Case, *flags: str) -> list[Object]:
    """The items of the answer for the case's namespace, of pods that are idle for a second."""
    words = ["idle", "-n", case.name, "--for", "1h", "-o", "json", *flags]
    done = subprocess.run(
        [sys.executable, str(COMMAND), *words],
        env=case.kubectl.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[Object] = json.loads(done.stdout)["items"]
    return found


def used(case: Case) -> dict[str, int]:
    """Bytes in use by name of the listed pod."""
    return {each["name"]: each["usedBytes"] for each in idle(case)}


def evicting(environment: KindEnvironment, case: Case, mode: str = "--evict") -> list[Object]:
    """The items of a run that gives notice and evicts."""
    flags = (f"--grace={GRACE}h", f"--plugin-namespace={environment.namespace}")
    return idle(case, mode, *flags, f"--lease={case.name}/idle")


def outcomes(environment: KindEnvironment, case: Case, mode: str = "--evict") -> dict[str, str]:
    """What becomes of each idle pod in a run."""
    return {each["name"]: each["outcome"] for each in evicting(environment, case, mode)}


def sm_percent(environment: KindEnvironment, node: str, case: Case, name: str) -> float | None:
    """SM utilization of a pod in the metrics of its node's plugin."""
    plugin = plugin_pod(environment, node)
    pod = environment.objects.pod(plugin, environment.namespace)
    (port,) = [
        each["containerPort"]
        for container in pod["spec"]["containers"]
        for each in container.get("ports", ())
        if each["name"] == "metrics"
    ]
    place = f"/api/v1/namespaces/{environment.namespace}/pods/https:{plugin}:{port}"
    path = f"{place}/proxy/metrics"
    for line in environment.kubectl("get", "--raw", path).splitlines():
        series, _, value = line.rpartition(" ")
        ours = (f'exported_namespace="{case.name}"', f'exported_pod="{name}"')
        if series.startswith("gpushare_pod_sm_") and all(each in series for each in ours):
            return float(value)
    return None


def test_a_pod_is_idle_while_its_processes_do_no_work(
    environment: KindEnvironment, case: Case, unused: str
) -> None:
    """The driver tells its utilization from that of its neighbours on the GPU."""
    names = ("worker", "waiting", "empty")
    case.create_running(*(case.pod(name, 1, node=unused) for name in names))
    gpus = case.gpus()
    pids = {name: first_pid(environment, case, name) for name in names[:2]}

    def processes(**sm: int) -> None:
        lines = [
            f"gpu {gpus[name]} process pid {pid} used_mib 512 sm {sm.get(name, 0)} name python3"
            for name, pid in pids.items()
        ]
        environment.break_gpus(unused, *lines)

    processes(worker=42)
    until(
        "the plugin exports the utilization of the worker",
        lambda: sm_percent(environment, unused, case, "worker") == 42,
    )
    until("the others are idle", lambda: used(case) == {"waiting": 512 << 20, "empty": 0})
    processes(waiting=7)
    until(
        "the pods have changed their parts", lambda: used(case) == {"worker": 512 << 20, "empty": 0}
    )


def test_an_idle_pod_of_a_deployment_is_evicted_when_its_grace_time_is_over(
    environment: KindEnvironment, case: Case, unused: str
) -> None:
    """A PodDisruptionBudget keeps one pod, a label another; a new pod follows the evicted one."""
    names = ("web", "kept", "allowed")
    made = {name: case.deployment(name, 1, replicas=1, node=unused) for name in names}
    made["allowed"]["spec"]["template"]["metadata"]["labels"] |= ALLOWED
    case.kubectl.apply(budget(case, "kept"), *made.values())
    pods = {name: until(f"{name} runs", partial(case.running, name))[0] for name in names}
    # The plugin has shown that it finds the pods of processes: then a pod without one uses nothing.
    pid, gpu = first_pid(environment, case, pods["allowed"]), case.gpus()[pods["allowed"]]
    environment.break_gpus(unused, f"gpu {gpu} process pid {pid} used_mib 256 sm 0 name python3")

    def became(web: str, kept: str) -> dict[str, str]:
        return {pods["web"]: web, pods["kept"]: kept}  # the one with the label is left out

    all_noticed = became("noticed", "noticed")
    until("all are idle", lambda: outcomes(environment, case, "--dry-run") == all_noticed)
    last: dict[str, str] = {}
    notices: dict[str, Object] = {}

    def all_have_notice() -> bool:
        """A pod that kubelet changes just then is refused once, and noticed by the next run.

        That may evict the other one already. So a notice is read before the next run.
        """
        for each in evicting(environment, case):
            name, outcome = each["name"], each["outcome"]
            last[name] = outcome
            if name in notices or name not in all_noticed:
                continue
            if outcome == "noticed":
                notices[name] = json.loads(case.annotations(name)["gpushare/idle-notice"])
            else:
                assert outcome == "refused"
                assert "has changed" in each["reason"]
        return notices.keys() == all_noticed.keys()

    until("each has notice", all_have_notice)
    notice = notices[pods["web"]]
    assert notice["evictAfter"] - notice["noticedAt"] == GRACE
    assert case.events("GpuIdleNotice", pods["web"])

    wanted = became("evicted", "refused")

    def ended() -> bool:
        last.update(outcomes(environment, case))
        return last.items() >= wanted.items()

    until("one is evicted and one is refused", ended)
    assert time.time() >= notice["evictAfter"]
    assert case.events("GpuIdlePodEvicted", pods["web"])
    assert not case.events("GpuIdlePodEvicted", pods["kept"])
    until("a new pod runs", lambda: set(case.running("web")) - {pods["web"]})
    assert [case.running(name) for name in names[1:]] == [[pods[name]] for name in names[1:]]


def budget(case: Case, app: str) -> Object:
    """A PodDisruptionBudget that admits no eviction of a Deployment's one pod."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": case.name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }
